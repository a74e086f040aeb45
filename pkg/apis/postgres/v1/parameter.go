package v1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// ParameterValue is the value of a server parameter as people write it in
// YAML: a string, a number or a boolean.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:Type=""
type ParameterValue struct {
	// raw is whatever JSON the API server let through, so decoding never fails;
	// Text says what it means, or why it means nothing. Null, which is what a key
	// without a value is in YAML, is let through, too, so that it is refused
	// instead of dropped.
	raw string `json:"-"`
}

// NewParameter makes the value that a string in YAML would make.
func NewParameter(text string) ParameterValue {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(fmt.Sprintf("marshal a string: %v", err)) // strings always marshal
	}
	return ParameterValue{raw: string(raw)}
}

// errNotScalar is what Text returns for lists, objects and null.
var errNotScalar = errors.New("must be a string, a number or a boolean; quote it")

// Text returns the value in the form that postgresql.conf takes between quotes:
// booleans are on and off, whole numbers have no exponent.
func (v ParameterValue) Text() (string, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader([]byte(v.raw)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return "", errNotScalar
	}
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		if value {
			return "on", nil
		}
		return "off", nil
	case json.Number:
		return numberText(value), nil
	}
	return "", errNotScalar
}

// numberText writes a JSON number as people do. JSON may write 1e6 for what
// the user wrote as 1000000, and integer parameters take no exponent.
func numberText(n json.Number) string {
	if _, err := n.Int64(); err == nil {
		return n.String()
	}
	f, err := n.Float64()
	if err != nil {
		return n.String()
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// MarshalJSON returns the JSON that the value was made from.
func (v ParameterValue) MarshalJSON() ([]byte, error) {
	if v.raw == "" {
		return []byte("null"), nil
	}
	return []byte(v.raw), nil
}

// UnmarshalJSON keeps any JSON value; it never fails.
func (v *ParameterValue) UnmarshalJSON(data []byte) error {
	v.raw = string(data)
	return nil
}
