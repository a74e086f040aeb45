package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"
	"github.com/sirupsen/logrus"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
	"github.com/pgop/postgres-operator/pkg/postgres/pgrun"
)

const (
	// declaredBeat is how often it is seen, in memory, whether something is due.
	declaredBeat = time.Second
	// declaredEvery is how often a server is read that was as declared, so that what
	// somebody has changed by hand is put right.
	declaredEvery = 2 * time.Minute
	// declaredAgain and declaredAgainMost are how long after a failure it is tried
	// again; the pause doubles.
	declaredAgain     = 5 * time.Second
	declaredAgainMost = time.Minute
	// passwordPatience is for how long roles wait for their Secrets to be read.
	passwordPatience = 5 * time.Second
	// declaredLongest bounds a look with all that it leads to.
	declaredLongest = 10 * time.Minute
)

// declaredSettings are those of the sessions in which roles and databases are made:
// a statement that fails is not logged, since it may hold a verifier, and none waits
// for long for what others do.
var declaredSettings = map[string]string{
	"application_name":        "pgop-roles",
	"lock_timeout":            "10s",
	"log_min_error_statement": "panic",
	"statement_timeout":       "5min",
}

// declarer keeps roles and databases on a primary as they are declared, and the
// password of the application database's owner, beside the loop. It does nothing on a replica.
type declarer struct {
	agent     *Agent
	log       *logrus.Entry
	passwords *passwordSource
	kicked    chan struct{}

	// done is what was last brought to the server.
	done declaredDone
	// since is when the configuration that is not done yet was first seen, and hash
	// which that is.
	since time.Time
	hash  string
}

// declaredDone is what was last brought to which server.
type declaredDone struct {
	server   *server
	hash     string
	secrets  int
	at       time.Time
	failures int
}

func newDeclarer(a *Agent) *declarer {
	d := &declarer{agent: a, log: a.log, kicked: make(chan struct{}, 1)}
	d.passwords = &passwordSource{kube: a.kube, wake: d.kick}
	a.status.update(func(s *instanceapi.State) { s.Declared = &instanceapi.DeclaredState{} })
	return d
}

// kick makes run look at once.
func (d *declarer) kick() {
	select {
	case d.kicked <- struct{}{}:
	default:
	}
}

// run looks after roles and databases until ctx ends.
func (d *declarer) run(ctx context.Context) {
	ticker := time.NewTicker(declaredBeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-d.kicked:
		}
		d.look(ctx, time.Now())
	}
}

// look brings the server to what is declared, if that is due.
func (d *declarer) look(ctx context.Context, now time.Time) {
	known, running := d.agent.view.knownConfig(), d.agent.runningAs()
	if !known.Known || running.Role != instanceapi.RolePrimary || !running.Open || !running.Reigning || !running.answers() {
		d.forget(ctx)
		return
	}
	declared := known.Config.WithOwner()
	d.passwords.follow(ctx, secretsOf(declared))
	hash := declared.Hash()
	if d.hash != hash || d.since.IsZero() {
		d.hash, d.since = hash, now
	}
	secrets, allSeen := d.passwords.version()
	if !allSeen && now.Sub(d.since) < passwordPatience || !d.done.isDue(running.server, hash, secrets, now, d.every()) {
		return
	}
	if d.done.hash != hash || d.done.secrets != secrets {
		d.done.failures = 0
	}
	result := instanceapi.DeclaredState{Hash: known.Config.Declared.Hash()}
	looked := true
	if !declared.IsEmpty() {
		ctx, cancel := context.WithTimeout(ctx, declaredLongest)
		defer cancel()
		w := &declaredWork{declarer: d, declared: declared, problems: map[declaredEntry]string{}, logins: map[string]roleLogins{}, next: map[string]rolePassword{}, inForce: map[string]bool{}}
		looked = w.run(ctx)
		result = w.state(result.Hash)
		if d.agent.runningAs().server != running.server {
			return // what was said of a server that is gone is of no interest
		}
	}
	// One that could not be looked at is as it was, as when all connections are taken.
	tell := looked || d.done.hash != hash || d.done.server != running.server
	failures := 0
	if hasProblem(result) {
		failures = d.done.failures + 1
	}
	d.done = declaredDone{server: running.server, hash: hash, secrets: secrets, at: time.Now(), failures: failures}
	if tell {
		d.agent.status.update(func(s *instanceapi.State) { s.Declared = &result })
	}
}

// forget is for an instance that is no primary, or not yet.
func (d *declarer) forget(ctx context.Context) {
	if d.done == (declaredDone{}) && d.since.IsZero() {
		return
	}
	d.passwords.follow(ctx, nil)
	d.done, d.since = declaredDone{}, time.Time{}
	d.agent.status.update(func(s *instanceapi.State) { s.Declared = &instanceapi.DeclaredState{} })
}

// every is how often a server is read that was as declared.
func (d *declarer) every() time.Duration { return cmp.Or(d.agent.options.DeclaredEvery, declaredEvery) }

// isDue says whether a server is to be looked at. Pause is how long to leave one
// alone that was as declared.
func (d declaredDone) isDue(server *server, hash string, secrets int, now time.Time, pause time.Duration) bool {
	if d.server != server || d.hash != hash || d.secrets != secrets {
		return true
	}
	if d.failures > 0 {
		pause = min(declaredAgain<<min(d.failures-1, 10), declaredAgainMost)
	}
	return now.Sub(d.at) >= pause
}

func secretsOf(d instanceapi.Declared) map[passwordSecret]bool {
	names := map[passwordSecret]bool{}
	for _, r := range d.Roles {
		if r.Secret != "" {
			names[passwordSecret{r.Secret, r.OwnSecret}] = true
		}
	}
	return names
}

func hasProblem(s instanceapi.DeclaredState) bool {
	if s.Owner != nil && s.Owner.Problem != "" {
		return true
	}
	for _, entries := range [][]instanceapi.DeclaredEntry{s.Roles, s.Databases} {
		for _, e := range entries {
			if e.Problem != "" {
				return true
			}
		}
	}
	return false
}

// declaredWork is one look, with what it leads to.
type declaredWork struct {
	*declarer
	declared instanceapi.Declared
	// problems are the entries' that have any. What fails for one is no matter of the
	// others.
	problems map[declaredEntry]string
	// logins are those of each role, as its Secret has them.
	logins map[string]roleLogins
	// next are the passwords that Secrets have as the next, by role, or those of second
	// logins, and inForce says which of them the server has.
	next    map[string]rolePassword
	inForce map[string]bool
}

// run brings the server to what is declared, as far as it lets. It returns false if
// the server could not even be looked at; then every entry has that as its problem.
func (w *declaredWork) run(ctx context.Context) bool {
	server, err := w.open("postgres")
	if err == nil {
		defer server.Close()
		err = w.runOn(ctx, server)
	}
	if err != nil {
		w.failAll(err)
	}
	return err == nil
}

func (w *declaredWork) runOn(ctx context.Context, server *pgrun.Server) error {
	found, err := readServer(ctx, server, w.declared)
	if err != nil {
		return err
	}
	clauses := w.passwordClauses(found)
	roles := w.declared
	roles.Roles = slices.Clone(roles.Roles)
	for i, r := range roles.Roles {
		roles.Roles[i], clauses[r.Name] = letIn(r, clauses[r.Name], w.logins[r.Name], found)
	}
	w.apply(ctx, server, planServer(roles, clauses, found))
	if err := w.keepLogins(ctx, server, found); err != nil {
		return err
	}
	if err := w.seeNext(ctx, server); err != nil {
		return err
	}
	for _, database := range w.declared.Databases {
		w.keepContent(ctx, database, found)
	}
	w.apply(ctx, server, planDrops(w.declared, found))
	return nil
}

// passwordClauses are those that set the passwords which differ, by role. A role whose
// Secret is of no use keeps the password that it has. What the Secrets have for other
// logins of roles is noted beside.
func (w *declaredWork) passwordClauses(found foundServer) map[string]string {
	clauses := map[string]string{}
	for _, role := range w.declared.Roles {
		if role.NoPassword && found.Roles[role.Name].Verifier != "" {
			clauses[role.Name] = "PASSWORD NULL"
		}
		passwords, managed, err := w.passwords.of(role, time.Now())
		logins := roleLogins{Known: role.Secret == "" || managed && err == nil, Passwords: map[string]rolePassword{}, Clauses: map[string]string{}}
		for n, password := range passwords {
			var clause string
			if clause, err = password.clause(found.Roles[password.User].Verifier); err != nil {
				break
			}
			logins.Passwords[password.User], logins.Clauses[password.User] = password, clause
			if password.Next || n > 0 {
				w.next[role.Name] = password
			}
		}
		if clause := logins.Clauses[role.Name]; clause != "" {
			clauses[role.Name] = clause
		}
		if err != nil {
			logins.Known = false
			w.problems[declaredEntry{aRole, role.Name}] = err.Error()
		}
		w.logins[role.Name] = logins
	}
	return clauses
}

// keepLogins brings the logins of roles to what the Secrets have. What fails for one is no
// matter of the others.
func (w *declaredWork) keepLogins(ctx context.Context, server *pgrun.Server, found foundServer) error {
	with := slices.DeleteFunc(slices.Clone(w.declared.Roles), func(r instanceapi.DeclaredRole) bool {
		return r.Absent || !w.logins[r.Name].inUse(r.Name) && !found.hasLogins(r.Name)
	})
	if len(with) == 0 {
		return nil
	}
	declared := map[string]bool{}
	for _, r := range w.declared.Roles {
		declared[r.Name] = true
	}
	for _, r := range with {
		if _, existed := found.Roles[r.Name]; r.PasswordOnly && !existed {
			continue // one that users have dropped stays away
		}
		plan, problem := planLogins(r, w.logins[r.Name], declared, found)
		w.note(declaredEntry{aRole, r.Name}, problem)
		w.applyEach(ctx, server, plan)
	}
	return nil
}

// seeNext sees which of the next passwords the server has: what is told is not what was
// sent, but what is there. A role that users have dropped has nothing to wait for.
func (w *declaredWork) seeNext(ctx context.Context, server *pgrun.Server) error {
	roles := slices.DeleteFunc(slices.Clone(w.declared.Roles), func(r instanceapi.DeclaredRole) bool { return w.next[r.Name].Plain == "" })
	if len(roles) == 0 {
		return nil
	}
	found := foundServer{Roles: map[string]foundRole{}}
	if err := readRoles(ctx, server, withLogins(roles), &found); err != nil {
		return err
	}
	for _, r := range roles {
		next := w.next[r.Name]
		now := found.Roles[next.User]
		ours := next.User == r.Name || found.isLogin(r.Name, next.User)
		_, exists := found.Roles[r.Name]
		w.inForce[r.Name] = ours && now.canLogIn(next) || !exists && r.PasswordOnly
	}
	return nil
}

// canLogIn says whether the role may log in with the password. One whose password is
// exchanged in place may be kept from it otherwise.
func (f foundRole) canLogIn(p rolePassword) bool {
	return postgres.VerifierMatches(f.Verifier, p.Plain) && (f.Login || p.Next)
}

// keepContent brings what lies in a database to what is declared.
func (w *declaredWork) keepContent(ctx context.Context, d instanceapi.DeclaredDatabase, found foundServer) {
	entry := declaredEntry{aDatabase, d.Name}
	if now, exists := found.Databases[d.Name]; exists && !d.Absent {
		w.note(entry, differsForGood(d, now))
		w.note(entry, grantedByOthers("DATABASE "+pq.QuoteIdentifier(d.Name), d.Grants, now.Grants))
	}
	failedBefore := w.problems[entry] != "" && found.Databases[d.Name].Owner == ""
	if d.Absent || failedBefore || len(d.Extensions) == 0 && len(d.Schemas) == 0 {
		return
	}
	server, err := w.open(d.Name)
	if err != nil {
		w.note(entry, err.Error())
		return
	}
	defer server.Close()
	content, err := readContent(ctx, server, d)
	if err != nil {
		w.note(entry, describeSQL(err))
		return
	}
	w.applyEach(ctx, server, planContent(d, content))
	for _, s := range d.Schemas {
		w.note(entry, grantedByOthers("SCHEMA "+pq.QuoteIdentifier(s.Name), s.Grants, content.Schemas[s.Name].Grants))
	}
}

// apply runs changes in their order. What fails ends those of its entry in this list.
func (w *declaredWork) apply(ctx context.Context, server *pgrun.Server, changes []change) {
	failed := map[declaredEntry]bool{}
	for _, c := range changes {
		if !failed[c.For] {
			failed[c.For] = !w.do(ctx, server, c)
		}
	}
}

// applyEach runs changes in their order, whatever fails.
func (w *declaredWork) applyEach(ctx context.Context, server *pgrun.Server, changes []change) {
	for _, c := range changes {
		w.do(ctx, server, c)
	}
}

func (w *declaredWork) do(ctx context.Context, server *pgrun.Server, c change) bool {
	if err := server.Exec(ctx, c.SQL); err != nil {
		w.note(c.For, c.What+": "+describeSQL(err))
		return false
	}
	w.log.WithField(string(c.For.Kind), c.For.Name).Info("changed what is declared: " + c.What)
	return true
}

// note adds to the problems of an entry.
func (w *declaredWork) note(e declaredEntry, problem string) {
	switch {
	case problem == "":
	case w.problems[e] == "":
		w.problems[e] = problem
	default:
		w.problems[e] += "; " + problem
	}
}

func (w *declaredWork) failAll(err error) {
	for _, r := range w.declared.Roles {
		w.note(declaredEntry{aRole, r.Name}, describeSQL(err))
	}
	for _, d := range w.declared.Databases {
		w.note(declaredEntry{aDatabase, d.Name}, describeSQL(err))
	}
}

// state is what to tell of the work.
func (w *declaredWork) state(hash string) instanceapi.DeclaredState {
	state := instanceapi.DeclaredState{Hash: hash}
	entry := func(kind declaredKind, name string) instanceapi.DeclaredEntry {
		return instanceapi.DeclaredEntry{Name: name, Problem: shortenTo(w.problems[declaredEntry{kind, name}], 1000)}
	}
	for _, r := range w.declared.Roles {
		e := entry(aRole, r.Name)
		if w.inForce[r.Name] {
			e.Next = w.next[r.Name].mark()
		}
		if r.PasswordOnly {
			state.Owner = &e
			continue
		}
		state.Roles = append(state.Roles, e)
	}
	for _, d := range w.declared.Databases {
		state.Databases = append(state.Databases, entry(aDatabase, d.Name))
	}
	return state
}

// open prepares a connection to a database.
func (w *declaredWork) open(database string) (*pgrun.Server, error) {
	o := w.agent.options
	return pgrun.OpenFor(o.RunDir, o.Port, database, declaredSettings)
}

// describeSQL is what the server says, or why it says nothing.
func describeSQL(err error) string {
	if refused := pgrun.ServerError(err); refused != nil {
		return serverWords(refused)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("it took longer than %s", declaredLongest)
	}
	return strings.TrimSpace(err.Error())
}
