package cluster

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
//
// With a grace time it is another login of the role that gets the next password, and
// takes the place of the one before; and there is a fourth step:
//
//  4. When the grace time is over, the Secret forgets the login before, and the agent,
//     which lets in those of the Secret alone, shuts it out.

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
		if r.Rotation.Cron == "" {
			continue
		}
		if _, err := backup.ParseSchedule(r.Rotation.Cron, ""); err != nil {
			errs = append(errs, fmt.Errorf("%s.cron: %w", field, err))
		} else if s, err := backup.ParseSchedule(r.Rotation.Cron, r.Rotation.TimeZone); err != nil {
			errs = append(errs, fmt.Errorf("%s.timeZone: %w", field, err))
		} else if grace := ptr.Deref(r.Rotation.Grace, metav1.Duration{}).Duration; grace > 0 && grace >= shortestPause(s) {
			errs = append(errs, fmt.Errorf("%s.grace: %s is not shorter than the times of cron are apart, which is %s at the least; take a shorter grace, or a schedule that comes less often", field, grace, shortestPause(s)))
		}
	}
	return errors.Join(errs...)
}

// shortestPause is the least time between two times of a schedule, as far as its next
// ones tell.
func shortestPause(s backup.Schedule) time.Duration {
	const times = 60
	shortest := time.Duration(math.MaxInt64)
	at := s.Next(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	for range times {
		next := s.Next(at)
		if next.IsZero() {
			break
		}
		shortest, at = min(shortest, next.Sub(at)), next
	}
	return shortest
}

// planRotations decides which passwords are exchanged, as a request or a schedule asks.
// It begins none without a primary that takes the next one.
func planRotations(o Observation, p *Plan) {
	p.Rotations = rotations{Begin: map[string]string{}, Next: map[string]time.Time{}}
	if p.SpecError == "" {
		for _, l := range specs.Logins(o.Cluster) {
			planScheduledRotation(o, p, l)
			planReturn(o, p, l)
		}
	}
	if _, asked := o.Cluster.Annotations[v1.RotateAnnotation]; asked && !p.Stop {
		passRotationOn(o, p)
	}
	for _, l := range specs.Logins(o.Cluster) {
		if live := o.Secrets[l.Secret]; live != nil && !l.Foreign && isExchanging(live, l) && !p.Stop {
			p.wait("the next password of role %s comes into force when the primary's server has it%s", l.Role, problemOf(o.loginEntry(l.Role)))
		}
	}
}

// planScheduledRotation begins an exchange that is due, once: the Secret tells when the
// last one began.
func planScheduledRotation(o Observation, p *Plan, l specs.Login) {
	if l.Rotation == nil || l.Rotation.Cron == "" || l.Foreign {
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
	case live != nil && mayBegin(live, l) && o.primaryServes() && !p.Stop:
		p.Rotations.Begin[l.Role] = ""
	}
	p.Rotations.Next[l.Role] = next
}

// planReturn begins the exchange after which one logs in as the role itself again, once
// the spec has no grace time for it any more.
func planReturn(o Observation, p *Plan, l specs.Login) {
	live := o.Secrets[l.Secret]
	if live == nil || l.Foreign || specs.GraceOf(l) > 0 || specs.UserOf(live, l) == l.Role {
		return
	}
	if mayBegin(live, l) && o.primaryServes() && !p.Stop {
		p.Rotations.Begin[l.Role] = ""
	}
}

// isExchanging says whether a Secret waits for the server to have a password.
func isExchanging(live *corev1.Secret, l specs.Login) bool {
	return specs.NextPassword(live) != "" || specs.OtherLoginOf(live, l).IsNext()
}

// mayBegin says whether an exchange can begin: none is under way, and no login before is
// valid still. There are two of them, and the next one is not to end its time.
func mayBegin(live *corev1.Secret, l specs.Login) bool {
	return specs.NextPassword(live) == "" && specs.OtherLoginOf(live, l).User == ""
}

// published returns the Secret of a login with what the primary has as its password, or
// nil while the primary has not what the Secret waits for.
func published(o Observation, l specs.Login, live *corev1.Secret, trusted []byte) *corev1.Secret {
	next, other := specs.NextPassword(live), specs.OtherLoginOf(live, l)
	told := o.loginEntry(l.Role).Next
	switch {
	case l.Foreign:
		return nil
	case next != "" && told == instanceapi.PasswordMark(next):
		return specs.FinishRotation(live, o.Cluster, l, trusted, o.Now)
	case other.IsNext() && told == instanceapi.LoginMark(other.User, other.Password):
		_, latest := o.clocks()
		return specs.FinishExchange(live, o.Cluster, l, trusted, latest, o.Now)
	}
	return nil
}

// clocks are the earliest and the latest of what the operator's clock and that of the
// primary say, which renews the Lease; the earliest is zero if nobody does. A clock that
// jumps, or another operator's, does not end a grace time early.
func (o Observation) clocks() (earliest, latest time.Time) {
	earliest, latest = o.Now, o.Now
	var renewed time.Time
	if o.Lease != nil && o.Lease.Spec.RenewTime != nil {
		renewed = o.Lease.Spec.RenewTime.Time
	}
	if renewed.Before(earliest) {
		earliest = renewed
	}
	if renewed.After(latest) {
		latest = renewed
	}
	return earliest, latest
}

// graceIsOver says whether the login before that of a Secret has been valid for as long
// as it should.
func graceIsOver(o Observation, other specs.OtherLogin) bool {
	earliest, _ := o.clocks()
	return other.IsPrevious() && !earliest.Before(other.Until())
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
		if live != nil && !isExchanging(live, l) {
			if live.Annotations[specs.RotationAskedAnnotation] == asked {
				continue
			}
			// What is refused says nothing of grace times.
			if mayBegin(live, l) && o.primaryServes() && (p.SpecError == "" || specs.IsInPlace(live, l)) {
				p.Rotations.Begin[l.Role] = asked
			}
		}
		waiting = append(waiting, l.Role+untilGraceEnds(live, l))
	}
	if len(waiting) == 0 {
		p.clear(o, v1.RotateAnnotation, "", "") // each password has an event of its own
		return
	}
	p.wait("%s=%s: %s to get new passwords%s", v1.RotateAnnotation, asked, strings.Join(waiting, ", "), withoutPrimary(o))
}

// untilGraceEnds says for what an exchange of a login waits; empty: for no grace time.
func untilGraceEnds(live *corev1.Secret, l specs.Login) string {
	if live == nil || !specs.OtherLoginOf(live, l).IsPrevious() {
		return ""
	}
	other := specs.OtherLoginOf(live, l)
	return fmt.Sprintf(" (once the login %s is valid no more, at %s)", other.User, other.Until().UTC().Format(time.RFC3339))
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
	if fresh := published(o, l, live, trusted); fresh != nil {
		p.Actions = append(p.Actions, Action{Verb: Update, Object: fresh, Owed: true, Reason: v1.ReasonPasswordRotated, Note: noteOfExchange(l, fresh)})
		return
	}
	other := specs.OtherLoginOf(live, l)
	repaired := specs.RepairLoginSecret(live, o.Cluster, l, trusted, o.Now)
	change := func() *corev1.Secret {
		if repaired == nil {
			repaired = live.DeepCopy()
		}
		return repaired
	}
	if by, begins := p.Rotations.Begin[l.Role]; begins && mayBegin(live, l) {
		if specs.IsInPlace(live, l) {
			specs.BeginRotation(change(), specs.NewPassword(), by, o.Now)
		} else {
			specs.BeginExchange(change(), l, specs.NewPassword(), by, o.Now)
		}
	} else if _, asked := o.Cluster.Annotations[v1.RotateAnnotation]; !asked && live.Annotations[specs.RotationAskedAnnotation] != "" {
		delete(change().Annotations, specs.RotationAskedAnnotation)
	}
	if other.IsNext() && other.User != specs.NextUser(live, l) && p.SpecError == "" {
		// The spec asks for another since. Nobody was told of this one.
		specs.EndGrace(change())
		delete(repaired.Annotations, specs.RotationAskedAnnotation)
	}
	if graceIsOver(o, other) {
		specs.EndGrace(change())
		p.Actions = append(p.Actions, Action{Verb: Update, Object: repaired, Reason: v1.ReasonLoginEnded,
			Note: fmt.Sprintf("role %s: the grace time is over, and the login %s is valid no more", l.Role, other.User)})
		return
	}
	if repaired != nil {
		p.update(repaired)
	}
}

// noteOfExchange tells what a Secret has now.
func noteOfExchange(l specs.Login, fresh *corev1.Secret) string {
	other := specs.OtherLoginOf(fresh, l)
	if !other.IsPrevious() {
		return fmt.Sprintf("role %s has a new password, which is in the Secret %s", l.Role, l.Secret)
	}
	return fmt.Sprintf("role %s has a new password, which is in the Secret %s, for the login %s; the login before, %s, is valid until %s",
		l.Role, l.Secret, specs.UserOf(fresh, l), other.User, other.Until().UTC().Format(time.RFC3339))
}

// rotationRecheck is when to look for the next exchange that is due.
func rotationRecheck(o Observation, p Plan) time.Duration {
	after := idleRecheck
	for _, l := range specs.Logins(o.Cluster) {
		live := o.Secrets[l.Secret]
		if live == nil {
			continue
		}
		const late = 5 * time.Second // the primary's clock may be behind
		if other := specs.OtherLoginOf(live, l); other.IsPrevious() {
			after = min(after, max(other.Until().Sub(o.Now), late))
		}
	}
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
			loginStatus(l, live, row)
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

// loginStatus is as whom one logs in for a role.
func loginStatus(l specs.Login, live *corev1.Secret, row *v1.RoleStatus) {
	if user := specs.UserOf(live, l); user != l.Role {
		row.Login = user
	}
	if other := specs.OtherLoginOf(live, l); other.IsPrevious() {
		row.PreviousLogin, row.PreviousLoginUntil = other.User, stamp(other.Until())
	}
}
