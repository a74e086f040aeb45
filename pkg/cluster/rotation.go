package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// A password is exchanged in steps, each of which is one write that can be lost and
// found again:
//
//  1. The Secret gets the next password beside the one that it has. Nothing uses it.
//  2. The primary's agent, which watches the Secret, gives it to the server, and tells
//     the mark of it from what it then reads there.
//  3. The Secret gets it in place of the old one, in every form.
//
// Whoever leads later has the Secret to go by, and tells of its own server.

// rotations are what a pass decides about new passwords.
type rotations struct {
	// Begin are the logins for which an exchange begins, by role; the value is the
	// request by which, empty for the schedule.
	Begin map[string]string
	// Next is when the schedules come next, by role.
	Next map[string]time.Time
}

// checkRotations refuses schedules that never come, by the field.
func checkRotations(c *v1.PostgresCluster) error {
	var errs []error
	for _, r := range c.Spec.Roles {
		if r.Rotation == nil {
			continue
		}
		field := fmt.Sprintf("spec.roles[%s].rotation", r.Name)
		if _, err := backup.ParseSchedule(r.Rotation.Cron, ""); err != nil {
			errs = append(errs, fmt.Errorf("%s.cron: %w", field, err))
		} else if _, err := backup.ParseSchedule(r.Rotation.Cron, r.Rotation.TimeZone); err != nil {
			errs = append(errs, fmt.Errorf("%s.timeZone: %w", field, err))
		}
	}
	return errors.Join(errs...)
}

// planRotations decides which passwords are exchanged, as a request or a schedule asks.
// It begins none without a primary that takes the next one.
func planRotations(o Observation, p *Plan) {
	p.Rotations = rotations{Begin: map[string]string{}, Next: map[string]time.Time{}}
	if p.SpecError == "" {
		for _, l := range specs.Logins(o.Cluster) {
			planScheduledRotation(o, p, l)
		}
	}
	if _, asked := o.Cluster.Annotations[v1.RotateAnnotation]; asked && !p.Stop {
		passRotationOn(o, p)
	}
	for _, l := range specs.Logins(o.Cluster) {
		if live := o.Secrets[l.Secret]; live != nil && !l.Foreign && specs.NextPassword(live) != "" && !p.Stop {
			p.wait("the next password of role %s comes into force when the primary's server has it%s", l.Role, problemOf(o.loginEntry(l.Role)))
		}
	}
}

// planScheduledRotation begins an exchange that is due, once: the Secret tells when the
// last one began.
func planScheduledRotation(o Observation, p *Plan, l specs.Login) {
	if l.Rotation == nil || l.Foreign {
		return
	}
	s, err := backup.ParseSchedule(l.Rotation.Cron, l.Rotation.TimeZone)
	if err != nil {
		return // SpecAccepted says so
	}
	next := o.nextRotation(l.Role)
	if next.IsZero() || !s.Next(next.Add(-time.Second)).Equal(next) {
		next = s.Next(o.Now) // it is new, or comes at other times than before
	}
	live := o.Secrets[l.Secret]
	switch {
	case next.After(o.Now):
	case live != nil && !specs.Rotated(live).Before(next):
		next = s.Next(o.Now)
	case live != nil && specs.NextPassword(live) == "" && o.primaryServes() && !p.Stop:
		p.Rotations.Begin[l.Role] = ""
	}
	p.Rotations.Next[l.Role] = next
}

// nextRotation is when the status says that a role's password is exchanged next; zero
// if it does not.
func (o Observation) nextRotation(role string) time.Time {
	for _, row := range o.Cluster.Status.Roles {
		if row.Name == role && row.NextRotation != nil {
			return row.NextRotation.Time
		}
	}
	return time.Time{}
}

// passRotationOn begins what a request asks for and takes it away when that is done. The
// Secrets keep the request for as long as it is seen, so that a cache that is behind
// makes no second one of it.
func passRotationOn(o Observation, p *Plan) {
	asked := o.Cluster.Annotations[v1.RotateAnnotation]
	logins, why := loginsToRotate(o.Cluster, asked)
	if why != "" {
		p.refuse(o, v1.RotateAnnotation, why)
		return
	}
	var waiting []string
	for _, l := range logins {
		live := o.Secrets[l.Secret]
		if live != nil && specs.NextPassword(live) == "" {
			if live.Annotations[specs.RotationAskedAnnotation] == asked {
				continue
			}
			if o.primaryServes() {
				p.Rotations.Begin[l.Role] = asked
			}
		}
		waiting = append(waiting, l.Role)
	}
	if len(waiting) == 0 {
		p.clear(o, v1.RotateAnnotation, "", "") // each password has an event of its own
		return
	}
	p.wait("%s=%s: %s to get new passwords%s", v1.RotateAnnotation, asked, strings.Join(waiting, ", "), withoutPrimary(o))
}

func withoutPrimary(o Observation) string {
	if o.primaryServes() {
		return ""
	}
	return ", once there is a primary that takes writes"
}

// loginsToRotate are those that a request means, or why it means none.
func loginsToRotate(c *v1.PostgresCluster, asked string) (logins []specs.Login, why string) {
	rotatable := slices.DeleteFunc(specs.Logins(c), func(l specs.Login) bool { return l.Foreign })
	if asked == v1.RotateAll {
		if len(rotatable) == 0 {
			return nil, "every password is in a Secret of your own; edit it there"
		}
		return rotatable, ""
	}
	if i := slices.IndexFunc(rotatable, func(l specs.Login) bool { return l.Role == asked }); i >= 0 {
		return rotatable[i : i+1], ""
	}
	for _, r := range c.Spec.Roles {
		if r.Name == asked && specs.HasCertificate(r) {
			return nil, fmt.Sprintf("the role logs in by the certificate in the Secret %s, which is renewed by itself, and has no password to exchange", specs.ClientSecret(c.Name, asked))
		}
		if r.Name == asked && specs.SecretOfRole(c, r) != "" {
			return nil, fmt.Sprintf("the password of the role is that of your Secret %s; edit it there", specs.SecretOfRole(c, r))
		}
	}
	var names []string
	for _, l := range rotatable {
		names = append(names, l.Role)
	}
	return nil, fmt.Sprintf("no role of the name has a password that the operator makes; name one of %v, or %s", names, v1.RotateAll)
}

// loginEntry is what the primary says of a role's login.
func (o Observation) loginEntry(role string) instanceapi.DeclaredEntry {
	state := o.declaredState()
	if state == nil {
		return instanceapi.DeclaredEntry{}
	}
	entries := slices.Clone(state.Roles)
	if state.Owner != nil {
		entries = append(entries, *state.Owner)
	}
	for _, e := range entries {
		if e.Name == role {
			return e
		}
	}
	return instanceapi.DeclaredEntry{}
}

func problemOf(e instanceapi.DeclaredEntry) string {
	if e.Problem == "" {
		return ""
	}
	return ": " + e.Problem
}

// ensureLogins keeps the logins that the operator publishes, and exchanges their
// passwords. One whose password is no longer its role's goes, unless the spec that says so
// is refused; that of an entry that was removed from the spec stays, as the role does.
func ensureLogins(o Observation, p *Plan, trusted []byte) {
	c := o.Cluster
	for _, l := range specs.Logins(c) {
		if l.Foreign && p.SpecError != "" {
			l.Foreign = o.told().Owner.Secret != "" // what is refused takes no password away
		}
		if live := o.Secrets[l.Secret]; live == nil {
			p.create(specs.NewLoginSecret(c, l, specs.NewPassword(), trusted), "", "")
		} else {
			keepLogin(o, p, l, live, trusted)
		}
	}
	if p.SpecError != "" {
		return
	}
	for _, r := range c.Spec.Roles {
		live := o.Secrets[specs.RoleSecret(c.Name, r.Name)]
		if live != nil && !specs.HasOwnSecret(c, r) && specs.SecretOfRole(c, r) != live.Name {
			p.delete(live, "", "")
		}
	}
}

// keepLogin repairs a login, or takes the next step of the exchange of its password.
func keepLogin(o Observation, p *Plan, l specs.Login, live *corev1.Secret, trusted []byte) {
	next := specs.NextPassword(live)
	if !l.Foreign && next != "" && o.loginEntry(l.Role).Next == instanceapi.PasswordMark(next) {
		p.Actions = append(p.Actions, Action{Verb: Update, Object: specs.FinishRotation(live, o.Cluster, l, trusted, o.Now), Owed: true,
			Reason: v1.ReasonPasswordRotated, Note: fmt.Sprintf("role %s has a new password, which is in the Secret %s", l.Role, l.Secret)})
		return
	}
	repaired := specs.RepairLoginSecret(live, o.Cluster, l, trusted, o.Now)
	change := func() *corev1.Secret {
		if repaired == nil {
			repaired = live.DeepCopy()
		}
		return repaired
	}
	if by, begins := p.Rotations.Begin[l.Role]; begins && next == "" {
		specs.BeginRotation(change(), specs.NewPassword(), by, o.Now)
	} else if _, asked := o.Cluster.Annotations[v1.RotateAnnotation]; !asked && live.Annotations[specs.RotationAskedAnnotation] != "" {
		delete(change().Annotations, specs.RotationAskedAnnotation)
	}
	if repaired != nil {
		p.update(repaired)
	}
}

// rotationRecheck is when to look for the next exchange that is due.
func rotationRecheck(o Observation, p Plan) time.Duration {
	after := idleRecheck
	for _, role := range slices.Sorted(maps.Keys(p.Rotations.Next)) {
		if until := p.Rotations.Next[role].Sub(o.Now); until > 0 {
			after = min(after, max(until, busyRecheck))
		}
	}
	return after
}

// rotationStatus is what the status says of a role's exchanges; what a refused spec
// asks for counts as it did.
func rotationStatus(o Observation, p Plan, row *v1.RoleStatus) {
	row.LastRotation = nil
	for _, l := range specs.Logins(o.Cluster) {
		if live := o.Secrets[l.Secret]; l.Role == row.Name && live != nil && !l.Foreign {
			row.LastRotation = stamp(specs.Rotated(live))
		}
	}
	if p.SpecError != "" {
		return
	}
	row.NextRotation = nil
	if next, planned := p.Rotations.Next[row.Name]; planned {
		row.NextRotation = &metav1.Time{Time: next}
	}
}
