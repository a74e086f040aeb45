package backup

import (
	"errors"
	"fmt"
)

// ErrDamaged: an object is not what was once written. The error names it.
var ErrDamaged = errors.New("the object is damaged")

// DamagedError is an ErrDamaged that says which object, and how it shows.
type DamagedError struct {
	Key string
	Why string
}

// Error names the object.
func (e *DamagedError) Error() string { return fmt.Sprintf("object %s is damaged: %s", e.Key, e.Why) }

// Is makes it an ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// ErrOtherContent: an object by that name is there already, with other content.
var ErrOtherContent = errors.New("the archive has it already, with other content")
