// Command apidoc prints docs/api.md: the fields of the CRDs with their rules, and
// the lists of the operator that go with them.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/pgop/postgres-operator/deploy"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

func main() {
	text, err := render(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

const head = `# API reference

<!-- Written by hack/update-codegen.sh from the types and the lists of the operator; changes made here are lost. -->

A ` + "`PostgresCluster`" + ` (` + "`pg`" + ` for short) of ` + "`pgop.dev/v1`" + ` is one PostgreSQL cluster. The same
descriptions are in ` + "`kubectl explain pg.spec`" + `. A field that is not listed does not
exist: kubectl refuses it, other clients get the API server's warning.

"Refused" are the words with which an edit is refused at once. What only the
operator can judge shows in the condition ` + "`SpecAccepted`" + `, and the configuration
before it stays in force.
`

// render is the document; top is the directory of the module.
func render(top string) (string, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(deploy.PostgresClusterCRD, &crd); err != nil {
		return "", fmt.Errorf("read the CRD: %w", err)
	}
	constants, err := documentedConstants(top + "/pkg/apis/postgres/v1")
	if err != nil {
		return "", err
	}
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("\n## The whole object\n")
	writeRules(&b, root)
	b.WriteString("\n## spec\n")
	writeFields(&b, "spec", root.Properties["spec"])
	if err := writePolicy(&b); err != nil {
		return "", err
	}
	writeParameters(&b)
	b.WriteString("\n## Requests\n\nAnnotations on the PostgresCluster.\n\n")
	writeConstants(&b, constants, func(c constant) bool { return strings.HasSuffix(c.name, "Annotation") })
	b.WriteString("\n## status\n")
	writeFields(&b, "status", root.Properties["status"])
	b.WriteString("\n## Conditions\n\nEach is always there. [events.md](events.md) lists their reasons.\n\n")
	writeConstants(&b, constants, func(c constant) bool { return strings.HasPrefix(c.name, "Condition") })
	b.WriteString("\n## Phases\n\nThe conditions in one word, for people.\n\n")
	writeConstants(&b, constants, func(c constant) bool { return strings.HasPrefix(c.name, "Phase") })
	if err := writeBackup(&b, constants); err != nil {
		return "", err
	}
	return b.String(), nil
}

const backupHead = `
# PostgresBackup

A ` + "`PostgresBackup`" + ` (` + "`pgb`" + ` for short) of ` + "`pgop.dev/v1`" + ` is a base backup of a
PostgresCluster: one that you ask for, one that a schedule asks for, or one that was
found in the store. See [backup.md](backup.md).
`

// writeBackup writes the fields of a PostgresBackup.
func writeBackup(b *strings.Builder, constants []constant) error {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(deploy.PostgresBackupCRD, &crd); err != nil {
		return fmt.Errorf("read the CRD: %w", err)
	}
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	b.WriteString(backupHead)
	b.WriteString("\n## spec of a PostgresBackup\n")
	spec := root.Properties["spec"]
	writeRules(b, &spec)
	writeFields(b, "spec", spec)
	b.WriteString("\n## status of a PostgresBackup\n")
	writeFields(b, "status", root.Properties["status"])
	b.WriteString("\n## Phases of a PostgresBackup\n\n")
	phases := []string{"BackupPending", "BackupRunning", "BackupCompleted", "BackupFailed"}
	writeConstants(b, constants, func(c constant) bool { return slices.Contains(phases, c.name) })
	return nil
}

// foreign are the fields whose types are Kubernetes' own: what is in them is
// told in its documentation.
var foreign = map[string]string{
	"spec.pod.affinity":                   "a pod's",
	"spec.pod.tolerations":                "a pod's",
	"spec.pod.topologySpreadConstraints":  "a pod's",
	"spec.pod.imagePullSecrets":           "a pod's",
	"spec.pod.env[].valueFrom":            "a container's",
	"spec.pod.sidecars[].env[].valueFrom": "a container's",
	"spec.pod.sidecars[].envFrom":         "a container's",
	"spec.pod.sidecars[].ports":           "a container's",
	"spec.pod.sidecars[].securityContext": "a container's",
	"status.conditions":                   "metav1.Condition",
}

// placeholder is a word with a <placeholder>, which Markdown would take for HTML.
var placeholder = regexp.MustCompile(`[\w./:-]*<[a-z]+>(?:-[\w]+)?`)

// writeFields writes the fields below an object, each with what is in it.
func writeFields(b *strings.Builder, path string, object apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		field := object.Properties[name]
		here := path + "." + name
		fmt.Fprintf(b, "\n### %s\n\n", here)
		fmt.Fprintf(b, "%s\n\n", strings.Join(facts(here, field, slices.Contains(object.Required, name)), "; "))
		b.WriteString(placeholder.ReplaceAllString(strings.TrimSpace(field.Description), "`$0`") + "\n")
		writeRules(b, &field)
		for _, below := range []*apiextensionsv1.JSONSchemaProps{itemsOf(field), valuesOf(field)} {
			if below != nil {
				writeRules(b, below)
			}
		}
		if foreign[here] != "" {
			continue
		}
		writeFields(b, here, field)
		if items := itemsOf(field); items != nil {
			writeFields(b, here+"[]", *items)
		}
	}
}

func itemsOf(field apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if field.Items == nil {
		return nil
	}
	return field.Items.Schema
}

func valuesOf(field apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if field.AdditionalProperties == nil {
		return nil
	}
	return field.AdditionalProperties.Schema
}

// facts are a field's type, whether it must be there, its default and its limits.
func facts(path string, field apiextensionsv1.JSONSchemaProps, required bool) []string {
	all := []string{typeOf(path, field)}
	if required {
		all = append(all, "required")
	}
	if field.Default != nil {
		all = append(all, fmt.Sprintf("default `%s`", strings.Trim(string(field.Default.Raw), `"`)))
	}
	if len(field.Enum) > 0 {
		var values []string
		for _, value := range field.Enum {
			values = append(values, "`"+strings.Trim(string(value.Raw), `"`)+"`")
		}
		all = append(all, "one of "+strings.Join(values, ", "))
	}
	all = append(all, limits(field, "")...)
	if items := itemsOf(field); items != nil && foreign[path] == "" {
		all = append(all, limits(*items, " each")...)
	}
	return all
}

func limits(field apiextensionsv1.JSONSchemaProps, of string) []string {
	var all []string
	if field.Minimum != nil {
		all = append(all, fmt.Sprintf("at least %g%s", *field.Minimum, of))
	}
	if field.Maximum != nil {
		all = append(all, fmt.Sprintf("at most %g%s", *field.Maximum, of))
	}
	for _, limit := range []struct {
		value *int64
		text  string
	}{
		{field.MinLength, "at least %d characters"}, {field.MaxLength, "at most %d characters"},
		{field.MaxItems, "at most %d items"}, {field.MaxProperties, "at most %d keys"},
	} {
		if limit.value != nil {
			all = append(all, fmt.Sprintf(limit.text, *limit.value)+of)
		}
	}
	return all
}

func typeOf(path string, field apiextensionsv1.JSONSchemaProps) string {
	switch {
	case foreign[path] != "" && field.Type == "array":
		return "list, as " + foreign[path]
	case foreign[path] != "":
		return "object, as " + foreign[path]
	case field.XIntOrString:
		return "quantity"
	case field.Type == "array":
		return "list of " + typeOf("", *field.Items.Schema)
	case valuesOf(field) != nil:
		return "map to " + typeOf("", *valuesOf(field))
	case field.Type == "":
		return "string, number or boolean"
	}
	return field.Type
}

func writeRules(b *strings.Builder, field *apiextensionsv1.JSONSchemaProps) {
	for n, rule := range field.XValidations {
		if n == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(b, "- Refused: %s.\n", rule.Message)
	}
}

// writePolicy writes the rules of the admission policy, which sees what the
// schema does not.
func writePolicy(b *strings.Builder) error {
	first, _, _ := bytes.Cut(deploy.PostgresClusterPolicy, []byte("\n---\n"))
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	if err := yaml.UnmarshalStrict(first, &policy); err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	b.WriteString(`
## Rules of the admission policy

The ValidatingAdmissionPolicy ` + "`" + policy.Name + "`" + `, which the operator installs with the
CRD, looks at what an edit changes in parameters and hba, and names the key or
the line. Without it the operator says the same in ` + "`SpecAccepted`" + `.

`)
	for _, v := range policy.Spec.Validations {
		fmt.Fprintf(b, "- Refused: %s.\n", v.Message)
	}
	return nil
}

// defaultsFor is the size of volume for which the defaults are shown.
const defaultsFor = 20 << 30

func writeParameters(b *strings.Builder) {
	b.WriteString(`
## Parameters that the operator sets itself

They are refused in ` + "`spec.postgres.parameters`" + `, whatever their case; ` + "`*`" + ` stands for any text.

| parameter | instead |
|---|---|
`)
	for _, owned := range postgres.Owned {
		fmt.Fprintf(b, "| `%s` | %s |\n", owned, postgres.WayOut(owned))
	}
	b.WriteString("\n`wal_level` must be `replica` or `logical`: one instance can become several at any\ntime. These have a least value:\n\n| parameter | at least |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(postgres.Least)) {
		fmt.Fprintf(b, "| `%s` | %d |\n", name, postgres.Least[name])
	}
	b.WriteString(`
` + "`shared_buffers`" + ` must fit in the memory request of ` + "`spec.resources`" + `, or in its limits of
huge pages where ` + "`huge_pages`" + ` is not off.

## Parameters that the operator sets unless you do

Sizes depend on that of the volumes; these are for 20Gi.

| parameter | value |
|---|---|
`)
	defaults := postgres.Defaults(defaultsFor)
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		fmt.Fprintf(b, "| `%s` | `%s` |\n", name, strings.TrimSpace(defaults[name]))
	}
}

// constant is one of the API's, with what its comment says.
type constant struct{ name, value, text string }

// documentedConstants are the constants of the package in dir that are texts, in
// the order of the files.
func documentedConstants(dir string) ([]constant, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []constant
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), dir+"/"+f.Name(), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, declaration := range parsed.Decls {
			if group, ok := declaration.(*ast.GenDecl); ok && group.Tok == token.CONST {
				all = append(all, constantsOf(group)...)
			}
		}
	}
	return all, nil
}

func constantsOf(group *ast.GenDecl) []constant {
	var all []constant
	for _, spec := range group.Specs {
		value := spec.(*ast.ValueSpec) // all that a const declaration holds
		if len(value.Values) != 1 {
			continue
		}
		literal, ok := value.Values[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		doc := value.Doc
		if doc == nil && len(group.Specs) == 1 {
			doc = group.Doc
		}
		all = append(all, constant{value.Names[0].Name, strings.Trim(literal.Value, `"`), strings.Join(strings.Fields(doc.Text()), " ")})
	}
	return all
}

// writeConstants writes a table of those that are wanted. Their comments begin
// with their names.
func writeConstants(b *strings.Builder, constants []constant, wanted func(constant) bool) {
	b.WriteString("| | |\n|---|---|\n")
	for _, c := range constants {
		if wanted(c) {
			text := strings.TrimPrefix(strings.TrimPrefix(c.text, c.name+" "), "means that ")
			fmt.Fprintf(b, "| `%s` | %s |\n", c.value, strings.TrimSuffix(text, "."))
		}
	}
}
