package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

func TestNewsOfEntries(t *testing.T) {
	roles := func(rows ...v1.RoleStatus) v1.PostgresClusterStatus { return v1.PostgresClusterStatus{Roles: rows} }
	good, bad, worse := v1.RoleStatus{Name: "a", Ready: true}, v1.RoleStatus{Name: "a", Message: "no"}, v1.RoleStatus{Name: "a", Message: "never"}
	cases := []struct {
		why           string
		before, after v1.PostgresClusterStatus
		want          []entryNews
	}{
		{"what begins well is no news", roles(), roles(good), nil},
		{"what stays is no news", roles(bad), roles(bad), nil},
		{"trouble is", roles(good), roles(bad), []entryNews{{"role a", "Warning", v1.ReasonDeclaredRefused, "role a: no"}}},
		{"trouble from the beginning is", roles(), roles(bad), []entryNews{{"role a", "Warning", v1.ReasonDeclaredRefused, "role a: no"}}},
		{"other trouble is", roles(bad), roles(worse), []entryNews{{"role a", "Warning", v1.ReasonDeclaredRefused, "role a: never"}}},
		{"its end is", roles(bad), roles(good), []entryNews{{"role a", "Normal", v1.ReasonAsDeclared, "role a is as declared"}}},
		{"an entry that goes is no news", roles(bad), roles(), nil},
		{"a role and a database of a name are two", roles(bad), v1.PostgresClusterStatus{Roles: []v1.RoleStatus{bad}, Databases: []v1.DatabaseStatus{{Name: "a", Message: "no"}}},
			[]entryNews{{"database a", "Warning", v1.ReasonDeclaredRefused, "database a: no"}}},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, newsOfEntries(c.before, c.after)); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
	}
}

// E-10: an authority is retired only once the logins of roles name the new one, too.
func TestE10LoginsOfRolesCountAsClients(t *testing.T) {
	w := settledWorld(1)
	w.settleWith(declareSome)
	o := w.observe()
	trusted := o.Secrets[specs.AppSecret("shop")].Data[specs.CAKey]
	if !clientsWereGiven(o, trusted) {
		t.Error("they name the authority that there is")
	}
	change(w, "shop-role-reporting", func(s *corev1.Secret) { s.Data[specs.CAKey] = []byte("another") })
	w.catchUp(allKinds...)
	if clientsWereGiven(w.observe(), trusted) {
		t.Error("one names another authority")
	}
}

// Conditions of a spec that is corrected speak of what is in force.
func TestRolesOfARefusedSpec(t *testing.T) {
	w := settledWorld(1)
	w.settleWith(declareSome)
	w.edit(func(s *v1.PostgresClusterSpec) {
		s.Roles = append(s.Roles, v1.RoleSpec{Name: "late"})
		s.Postgres.HBA = []string{"nonsense"}
	})
	status, _ := w.settle()
	if reason := reasonOf(status, v1.ConditionDatabasesReady); reason != v1.ReasonAsDeclared {
		t.Errorf("DatabasesReady says %s", reason)
	}
	w.settleWith(func(s *v1.PostgresClusterSpec) { s.Postgres.HBA = nil })
	for _, c := range w.cluster.Status.Conditions {
		if c.Type == v1.ConditionDatabasesReady && (c.Status != metav1.ConditionTrue || c.ObservedGeneration != w.cluster.Generation) {
			t.Errorf("DatabasesReady is %+v", c)
		}
	}
	if last := w.cluster.Status.Roles[len(w.cluster.Status.Roles)-1]; last != (v1.RoleStatus{Name: "late", Ready: true}) {
		t.Errorf("the new role is %+v", last)
	}
}
