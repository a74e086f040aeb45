package instance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// rolePassword is what a Secret says of a role's password: it, or its verifier.
type rolePassword struct {
	// User is who logs in with it: the role, or one of its logins.
	User            string
	Plain, Verifier string
	// Next is true for one that its Secret has as the next.
	Next bool
}

var (
	// verifierForm is that of pg_authid.rolpassword for scram-sha-256.
	verifierForm = regexp.MustCompile(`^SCRAM-SHA-256\$[1-9][0-9]*:[A-Za-z0-9+/]+=*\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}=$`)
	// md5Form is that of the hash that servers have kept before.
	md5Form = regexp.MustCompile(`^md5[0-9a-f]{32}$`)
)

// passwordsIn reads the Secret of a role: the password that clients are told of, and then
// that of a second login, if there is one. Its errors name what is wrong with it, and
// never what is in it.
func passwordsIn(secret *corev1.Secret, of passwordSecret, role string) ([]rolePassword, error) {
	first, err := passwordIn(secret, of, role)
	if err != nil {
		return nil, err
	}
	passwords := []rolePassword{first}
	other, password := string(secret.Data[instanceapi.OtherUsernameKey]), string(secret.Data[instanceapi.OtherPasswordKey])
	switch {
	case !of.own || other == "" && password == "":
	case !instanceapi.IsLoginOf(role, other) || other == first.User:
		return nil, fmt.Errorf("the Secret %s: the key %s is of no other login of the role; remove it", of.name, instanceapi.OtherUsernameKey)
	case password == "" || strings.ContainsRune(password, 0):
		return nil, fmt.Errorf("the Secret %s: the key %s has no password; remove it and %s", of.name, instanceapi.OtherPasswordKey, instanceapi.OtherUsernameKey)
	case verifierForm.MatchString(password):
		passwords = append(passwords, rolePassword{User: other, Verifier: password})
	default:
		passwords = append(passwords, rolePassword{User: other, Plain: password})
	}
	return passwords, nil
}

// passwordIn reads the password that clients are told of. Where the operator is about to
// exchange it in place it is the next: the server has that first.
func passwordIn(secret *corev1.Secret, of passwordSecret, role string) (rolePassword, error) {
	name := of.name
	if secret == nil {
		return rolePassword{}, fmt.Errorf("the Secret %s does not exist; create it with the key %s", name, instanceapi.PasswordKey)
	}
	user := role
	if given, found := secret.Data[instanceapi.UsernameKey]; found {
		user = string(given)
	}
	if user != role && !(of.own && instanceapi.IsLoginOf(role, user)) {
		return rolePassword{}, fmt.Errorf("the Secret %s: the key %s is of another role; let it be %s, or remove it", name, instanceapi.UsernameKey, role)
	}
	if next := string(secret.Data[instanceapi.NextPasswordKey]); of.own && next != "" {
		return rolePassword{User: user, Plain: next, Next: true}, nil
	}
	password := string(secret.Data[instanceapi.PasswordKey])
	switch {
	case password == "":
		return rolePassword{}, fmt.Errorf("the Secret %s has nothing under the key %s", name, instanceapi.PasswordKey)
	case strings.ContainsRune(password, 0):
		return rolePassword{}, fmt.Errorf("the Secret %s: the key %s holds a zero byte, which no password can", name, instanceapi.PasswordKey)
	case verifierForm.MatchString(password):
		return rolePassword{User: user, Verifier: password}, nil
	case strings.HasPrefix(password, "SCRAM-SHA-256$"):
		return rolePassword{}, fmt.Errorf("the Secret %s: the key %s begins like a verifier and is none; write it as pg_authid.rolpassword has it", name, instanceapi.PasswordKey)
	case md5Form.MatchString(password):
		return rolePassword{}, fmt.Errorf("the Secret %s: the key %s is an md5 hash, with which nobody can log in over scram-sha-256; write the password or its SCRAM-SHA-256 verifier", name, instanceapi.PasswordKey)
	}
	return rolePassword{User: user, Plain: password}, nil
}

// clause is what brings a role whose verifier is now the one given to the password;
// empty: it has it.
func (p rolePassword) clause(now string) (string, error) {
	verifier := p.Verifier
	switch {
	case verifier != "" && verifier == now:
		return "", nil
	case verifier == "" && postgres.VerifierMatches(now, p.Plain):
		return "", nil
	case verifier == "":
		var err error
		if verifier, err = postgres.ScramVerifier(p.Plain); err != nil {
			return "", err
		}
	}
	return "PASSWORD " + pq.QuoteLiteral(verifier), nil
}

// mark is by what the operator knows the password.
func (p rolePassword) mark() string {
	if p.Next {
		return instanceapi.PasswordMark(p.Plain)
	}
	return instanceapi.LoginMark(p.User, p.Plain)
}

// passwordSource watches the Secrets of roles. It wakes whoever needs them when one
// has changed.
type passwordSource struct {
	kube Kubernetes
	wake func()

	mu      sync.Mutex
	watched map[passwordSecret]*watchedSecret
	// changes counts what was seen.
	changes int
}

// passwordSecret names a Secret; own is true for one that the operator makes.
type passwordSecret struct {
	name string
	own  bool
}

type watchedSecret struct {
	stop   context.CancelFunc
	seen   bool
	secret *corev1.Secret
	// goneSince is when the Secret was first seen to be missing; zero: it is there.
	goneSince time.Time
}

// ownSecretPatience is how long the operator may take to make a Secret.
const ownSecretPatience = 15 * time.Second

// follow watches these Secrets and no others until ctx ends.
func (s *passwordSource) follow(ctx context.Context, names map[passwordSecret]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, w := range s.watched {
		if !names[name] {
			w.stop()
			delete(s.watched, name)
		}
	}
	if s.watched == nil {
		s.watched = map[passwordSecret]*watchedSecret{}
	}
	for name := range names {
		if s.watched[name] != nil {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		w := &watchedSecret{stop: stop}
		s.watched[name] = w
		go s.kube.WatchSecret(ctx, name.name, name.own, func(secret *corev1.Secret) { s.saw(w, secret) })
	}
}

// saw takes note of a version of a Secret. Of it only what is used is kept, and only
// a change of that wakes anybody.
func (s *passwordSource) saw(w *watchedSecret, secret *corev1.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := onlyWhatIsUsed(secret)
	if w.seen && equality.Semantic.DeepEqual(w.secret, used) {
		return
	}
	w.seen, w.secret, w.goneSince = true, used, time.Time{}
	if used == nil {
		w.goneSince = time.Now()
	}
	s.changes++
	s.wake()
}

func onlyWhatIsUsed(secret *corev1.Secret) *corev1.Secret {
	if secret == nil {
		return nil
	}
	used := &corev1.Secret{Data: map[string][]byte{}}
	for _, key := range []string{instanceapi.UsernameKey, instanceapi.PasswordKey, instanceapi.NextPasswordKey, instanceapi.OtherUsernameKey, instanceapi.OtherPasswordKey} {
		if value, found := secret.Data[key]; found {
			used.Data[key] = value
		}
	}
	return used
}

// version changes with each Secret that is seen. AllSeen says whether each was seen,
// and each that the operator makes is there.
func (s *passwordSource) version() (changes int, allSeen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, w := range s.watched {
		if !w.seen || name.own && w.secret == nil {
			return s.changes, false
		}
	}
	return s.changes, true
}

// of are the passwords of a role, as passwordsIn has them; false if it has none from
// here, or none for the moment: a Secret that the operator makes may have been deleted.
func (s *passwordSource) of(r instanceapi.DeclaredRole, now time.Time) ([]rolePassword, bool, error) {
	if r.Secret == "" {
		return nil, false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watched[passwordSecret{r.Secret, r.OwnSecret}]
	if w == nil || !w.seen {
		return nil, true, errors.New("the API server has not let Secret " + r.Secret + " be read yet")
	}
	if r.OwnSecret && w.secret == nil {
		if now.Sub(w.goneSince) < ownSecretPatience {
			return nil, false, nil
		}
		return nil, true, errors.New("the Secret " + r.Secret + " is not there; the operator makes it, unless another of the name is in the way")
	}
	passwords, err := passwordsIn(w.secret, passwordSecret{r.Secret, r.OwnSecret}, r.Name)
	return passwords, true, err
}
