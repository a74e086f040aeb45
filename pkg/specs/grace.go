package specs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// The Secret of a role whose password is exchanged with a grace time holds the login that
// clients are told of and, beside it, either the next one, which the server is to have
// first, or the one before. In the Secret itself is all that there is to know of an
// exchange, so that whoever comes next goes on from it.

// OtherLogin is the login beside that of a Secret.
type OtherLogin struct {
	User, Password string
	// Since is when the Secret's login took its place; zero: it is yet to take that
	// of the Secret's.
	Since time.Time
	// Grace is for how long it is valid from then on.
	Grace time.Duration
}

// IsNext says whether it is yet to take the place of the Secret's login.
func (o OtherLogin) IsNext() bool { return o.User != "" && o.Since.IsZero() }

// IsPrevious says whether the Secret's login has taken its place.
func (o OtherLogin) IsPrevious() bool { return o.User != "" && !o.Since.IsZero() }

// Until is when the grace time of a previous login ends.
func (o OtherLogin) Until() time.Time { return o.Since.Add(o.Grace) }

// UserOf is as whom the login of a Secret logs in.
func UserOf(live *corev1.Secret, l Login) string {
	if user := string(live.Data[instanceapi.UsernameKey]); !l.Foreign && instanceapi.IsLoginOf(l.Role, user) {
		return user
	}
	return l.Role // somebody edited it, or the password is not the operator's
}

// OtherLoginOf is the login beside that of a Secret; zero: there is none.
func OtherLoginOf(live *corev1.Secret, l Login) OtherLogin {
	o := OtherLogin{User: string(live.Data[instanceapi.OtherUsernameKey]), Password: string(live.Data[instanceapi.OtherPasswordKey])}
	if l.Foreign || o.Password == "" || !instanceapi.IsLoginOf(l.Role, o.User) || o.User == UserOf(live, l) {
		return OtherLogin{}
	}
	const otherwise = time.Hour // somebody edited it
	var err error
	if o.Grace, err = time.ParseDuration(live.Annotations[GraceAnnotation]); err != nil || o.Grace <= 0 {
		o.Grace = otherwise
	}
	if text, is := live.Annotations[LoginsExchangedAnnotation]; is {
		if o.Since, err = time.Parse(time.RFC3339, text); err != nil {
			o.Since = Rotated(live) // before it, but better than never
		}
	}
	return o
}

// GraceOf is the grace time of a login's exchanges; zero: they are made in place.
func GraceOf(l Login) time.Duration {
	if l.Rotation == nil || l.Rotation.Grace == nil || l.Foreign {
		return 0
	}
	return l.Rotation.Grace.Duration
}

// NextUser is as whom one logs in after the next exchange: by turns as one of the two
// logins of the role, or as the role itself if there is no grace time any more.
func NextUser(live *corev1.Secret, l Login) string {
	logins := instanceapi.RoleLogins(l.Role)
	switch {
	case GraceOf(l) == 0:
		return l.Role
	case UserOf(live, l) == logins[0]:
		return logins[1]
	}
	return logins[0]
}

// IsInPlace says whether the next exchange is one of the password alone.
func IsInPlace(live *corev1.Secret, l Login) bool { return NextUser(live, l) == UserOf(live, l) }

// BeginExchange puts the next login, with that password, beside that of a Secret, and by
// which request; empty: by none.
func BeginExchange(live *corev1.Secret, l Login, password, asked string, now time.Time) {
	user := NextUser(live, l)
	BeginRotation(live, "", asked, now)
	delete(live.Data, instanceapi.NextPasswordKey)
	delete(live.Annotations, LoginsExchangedAnnotation)
	live.Data[instanceapi.OtherUsernameKey], live.Data[instanceapi.OtherPasswordKey] = []byte(user), []byte(password)
	// Of a spec that has no grace time any more, the last one counts.
	if grace := GraceOf(l); grace > 0 {
		live.Annotations[GraceAnnotation] = grace.String()
	}
}

// FinishExchange returns live with the login beside it as its own, in every form, and the
// one that was its own beside it, since the given time; all else is as RepairLoginSecret
// has it.
func FinishExchange(live *corev1.Secret, c *v1.PostgresCluster, l Login, ca []byte, since, now time.Time) *corev1.Secret {
	other, before := OtherLoginOf(live, l), UserOf(live, l)
	l.User = other.User
	finished := orCopy(repairLogin(live, c, l, other.Password, ca, now), live)
	finished.Data[instanceapi.OtherUsernameKey], finished.Data[instanceapi.OtherPasswordKey] = []byte(before), live.Data[instanceapi.PasswordKey]
	finished.Annotations = withLabels(finished.Annotations, map[string]string{LoginsExchangedAnnotation: since.UTC().Format(time.RFC3339)})
	return finished
}

// EndGrace takes the login beside that of a Secret away.
func EndGrace(live *corev1.Secret) {
	delete(live.Data, instanceapi.OtherUsernameKey)
	delete(live.Data, instanceapi.OtherPasswordKey)
	delete(live.Annotations, LoginsExchangedAnnotation)
}

// checkLoginNames refuses a grace time for a role whose logins would have the names of
// other roles.
func checkLoginNames(c *v1.PostgresCluster, r v1.RoleSpec) error {
	if r.Rotation == nil || r.Rotation.Grace == nil || isAbsent(r.Ensure) {
		return nil
	}
	var errs []error
	for _, name := range instanceapi.RoleLogins(r.Name) {
		if name == appOwner(c) || slices.ContainsFunc(c.Spec.Roles, func(other v1.RoleSpec) bool { return other.Name == name }) {
			errs = append(errs, fmt.Errorf("spec.roles[%s].rotation.grace: clients would log in as %s, which is another role; rename that one, or remove grace", r.Name, name))
		}
	}
	return errors.Join(errs...)
}
