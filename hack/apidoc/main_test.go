package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReferenceIsUpToDate(t *testing.T) {
	want, err := render("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("run hack/update-codegen.sh:\n%s", diff)
	}
	for _, told := range []string{"### spec.storage.size", "### status.members[].name", "`recovery_target*`", "a volume can't shrink", "`SpecAccepted`", "`pgop.dev/restart`"} {
		if !strings.Contains(want, told) {
			t.Errorf("nothing is told of %s", told)
		}
	}
}
