package specs

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/pki"
)

// Login is a login that the operator publishes in a Secret of its own.
type Login struct {
	Role, Secret, Database string
	// Foreign is true where the password is in a Secret of the user's own: then this one
	// has everything else.
	Foreign bool
	// Rotation is when and how the password is exchanged; nil: when somebody asks, in
	// place.
	Rotation *v1.RotationSpec
	// User is as whom one logs in; empty: as the role itself.
	User string
}

// Logins are all that the operator publishes: that of the application database's owner,
// and those of roles whose password it makes, in the order of the spec. A role's leads
// to the first database of the spec that the role owns, or else to the application's.
func Logins(c *v1.PostgresCluster) []Login {
	owner := Login{Role: appOwner(c), Secret: AppSecret(c.Name), Database: appDatabase(c), Foreign: OwnerSecret(c) != ""}
	var others []Login
	for _, r := range c.Spec.Roles {
		switch {
		case r.Name == owner.Role:
			owner.Rotation = r.Rotation
		case HasOwnSecret(c, r):
			others = append(others, Login{Role: r.Name, Secret: RoleSecret(c.Name, r.Name), Database: databaseOf(c, r.Name), Rotation: r.Rotation})
		}
	}
	return append([]Login{owner}, others...)
}

// NewLoginSecret publishes a login, with that password unless it is Foreign.
func NewLoginSecret(c *v1.PostgresCluster, l Login, password string, ca []byte) *corev1.Secret {
	if l.Foreign {
		password = ""
	}
	secret := &corev1.Secret{
		ObjectMeta: objectMeta(c, l.Secret),
		Type:       corev1.SecretTypeOpaque,
		Data:       login(c, cmp.Or(l.User, l.Role), l.Database, password, ca),
	}
	if l.Foreign {
		maps.DeleteFunc(secret.Data, func(key string, _ []byte) bool { return isOfPassword(key) })
	}
	return secret
}

// isOfPassword says whether a key is there for a password alone.
func isOfPassword(key string) bool {
	return slices.Contains([]string{instanceapi.PasswordKey, "pgpass", instanceapi.NextPasswordKey, instanceapi.OtherUsernameKey, instanceapi.OtherPasswordKey}, key)
}

// RepairLoginSecret returns live with everything in it derived anew from the login and
// the password that it holds, or nil if it is so. Whoever edits the password in the Secret gets it
// into the server and into the other forms. An empty password is made anew. An authority
// that is new in ca.crt is so since now.
func RepairLoginSecret(live *corev1.Secret, c *v1.PostgresCluster, l Login, ca []byte, now time.Time) *corev1.Secret {
	password := string(live.Data[instanceapi.PasswordKey])
	if password == "" && !l.Foreign {
		password = NewPassword()
	}
	l.User = UserOf(live, l)
	repaired := repairLogin(live, c, l, password, ca, now)
	if l.Foreign {
		for key := range live.Data {
			if isOfPassword(key) {
				repaired = orCopy(repaired, live)
				delete(repaired.Data, key)
			}
		}
	}
	return repaired
}

// repairLogin does what RepairSecret does, with that password, and notes since when
// ca.crt has all that are in it.
func repairLogin(live *corev1.Secret, c *v1.PostgresCluster, l Login, password string, ca []byte, now time.Time) *corev1.Secret {
	want := NewLoginSecret(c, l, password, ca)
	if !pki.TrustsAll(live.Data[CAKey], ca) {
		want.Annotations = map[string]string{SinceAnnotation: now.UTC().Format(time.RFC3339)}
	}
	return RepairSecret(live, want)
}

func orCopy(secret, live *corev1.Secret) *corev1.Secret {
	if secret != nil {
		return secret
	}
	return live.DeepCopy()
}

// NextPassword is the one that a login's Secret waits for the server to have; empty:
// none.
func NextPassword(login *corev1.Secret) string {
	return string(login.Data[instanceapi.NextPasswordKey])
}

// Rotated is when the password of a login was last begun to be exchanged; zero: never.
func Rotated(login *corev1.Secret) time.Time {
	at, err := time.Parse(time.RFC3339, login.Annotations[RotatedAnnotation])
	if err != nil {
		return time.Time{} // somebody edited it
	}
	return at
}

// BeginRotation puts the next password of a login into its Secret, and by which request;
// empty: by none.
func BeginRotation(login *corev1.Secret, next, asked string, now time.Time) {
	if login.Data == nil {
		login.Data = map[string][]byte{}
	}
	login.Data[instanceapi.NextPasswordKey] = []byte(next)
	login.Annotations = withLabels(login.Annotations, map[string]string{RotatedAnnotation: now.UTC().Format(time.RFC3339)})
	if asked != "" {
		login.Annotations[RotationAskedAnnotation] = asked
	}
}

// FinishRotation returns live with its next password as its password, in every form, and
// with all else as RepairLoginSecret has it.
func FinishRotation(live *corev1.Secret, c *v1.PostgresCluster, l Login, ca []byte, now time.Time) *corev1.Secret {
	finished := orCopy(repairLogin(live, c, l, NextPassword(live), ca, now), live)
	delete(finished.Data, instanceapi.NextPasswordKey)
	return finished
}
