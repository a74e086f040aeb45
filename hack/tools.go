//go:build tools

// Package tools keeps the code generators in go.mod, so that hack/update-codegen.sh
// runs the versions that are recorded there.
package tools

import _ "k8s.io/code-generator"
