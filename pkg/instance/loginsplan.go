package instance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lib/pq"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// roleLogins are the logins of a role, as its Secret has them.
type roleLogins struct {
	// Known is false while the Secret can't be read: then all stay as they are.
	Known bool
	// Passwords are those with which one can log in, by who does: the role itself or one
	// of its logins. Without any the role has no logins but itself.
	Passwords map[string]rolePassword
	// Clauses set the passwords that differ.
	Clauses map[string]string
}

// inUse says whether anybody logs in as another than the role itself.
func (l roleLogins) inUse(role string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(l.Passwords)), func(user string) bool { return user != role })
}

// loginComment marks a login as the agent's own. A role of the name that has not this
// comment is somebody's, and is never touched.
func loginComment(role string) string {
	return "a login of " + role + ", kept by postgres-operator"
}

// isLogin says whether name is a login of the role that the agent has made.
func (f foundServer) isLogin(role, name string) bool {
	now, exists := f.Roles[name]
	return exists && now.Comment == loginComment(role)
}

// hasLogins says whether the role has any.
func (f foundServer) hasLogins(role string) bool {
	names := instanceapi.RoleLogins(role)
	return slices.ContainsFunc(names[:], func(name string) bool { return f.isLogin(role, name) })
}

// forgetsRoles says whether the server passes over ALTER ROLE … SET role when somebody logs
// in, as those of November 14, 2024, did for a week.
func (f foundServer) forgetsRoles() bool {
	return slices.Contains([]int{150009, 160005, 170001}, f.Version)
}

// letIn returns the role with the right to log in that its logins leave it. Of one of
// which nothing but the password counts it is in the clause.
func letIn(w instanceapi.DeclaredRole, clause string, logins roleLogins, found foundServer) (instanceapi.DeclaredRole, string) {
	now, exists := found.Roles[w.Name]
	switch {
	case w.Absent:
	case !logins.Known:
		if exists && found.hasLogins(w.Name) {
			w.Login = now.Login
		}
	case logins.inUse(w.Name), w.PasswordOnly && len(logins.Passwords) > 0 && found.hasLogins(w.Name):
		_, may := logins.Passwords[w.Name]
		w.Login = w.Login && may
		if !may && now.Verifier != "" {
			clause = "PASSWORD NULL"
		}
		if w.PasswordOnly && exists && now.Login != may {
			clause = strings.TrimSpace(map[bool]string{true: "LOGIN ", false: "NOLOGIN "}[may] + clause)
		}
	}
	return w, clause
}

// planLogins says what to do about the logins of a role that exists: each change is all
// that there is to do about one, so that nobody finds it half made. What is in the way
// of one is returned beside.
func planLogins(w instanceapi.DeclaredRole, logins roleLogins, declared map[string]bool, found foundServer) (plan []change, problem string) {
	if w.Absent || !logins.Known {
		return nil, ""
	}
	for _, name := range instanceapi.RoleLogins(w.Name) {
		_, wanted := logins.Passwords[name]
		_, exists := found.Roles[name]
		switch {
		case wanted && found.forgetsRoles():
			problem = fmt.Sprintf("the login %s can't be made: PostgreSQL %d.%d forgets that it is to act as the role; take a later minor version, or spec.roles[%s].rotation.grace away",
				name, found.Version/10000, found.Version%10000, w.Name)
		case wanted && (declared[name] || exists && !found.isLogin(w.Name, name)):
			problem = fmt.Sprintf("the login %s can't be made, since another role has the name; rename that: ALTER ROLE %s RENAME TO …", name, pq.QuoteIdentifier(name))
		case wanted:
			plan = append(plan, planLogin(w, name, logins.Clauses[name], found)...)
		case declared[name] || !found.isLogin(w.Name, name):
		case logins.inUse(w.Name) || found.Sessions[name] > 0:
			plan = append(plan, shutOut(w, name, found)...)
		default:
			plan = append(plan, dropLogin(w, name))
		}
	}
	return plan, problem
}

// planLogin makes a login, or puts right what of it differs. What a session may do goes
// by the role as which it acts, but for what is seen to before it acts as any: whether
// it may stream, or log in although connections are scarce.
func planLogin(w instanceapi.DeclaredRole, name, clause string, found foundServer) []change {
	login := instanceapi.DeclaredRole{
		Name: name, Login: true, Inherit: true, Superuser: w.Superuser, Replication: w.Replication,
		ConnectionLimit: w.ConnectionLimit, ValidUntil: w.ValidUntil, MemberOf: []string{w.Name}, Comment: loginComment(w.Name),
	}
	if w.PasswordOnly { // the role is as somebody has made it
		now := found.Roles[w.Name]
		login.Superuser, login.Replication, login.ConnectionLimit, login.ValidUntil = now.Superuser, now.Replication, now.ConnectionLimit, now.ValidUntil
	}
	plan := append(planRole(login, clause, found), planMemberships(login, found)...)
	return oneChange(w, name, append(plan, planSettings(w.Name, name, found)...))
}

// shutOut ends the right of a login to log in. Its sessions go on.
func shutOut(w instanceapi.DeclaredRole, name string, found foundServer) []change {
	if now := found.Roles[name]; !now.Login && now.Verifier == "" {
		return nil
	}
	return []change{{declaredEntry{aRole, w.Name}, "ALTER ROLE " + pq.QuoteIdentifier(name) + " NOLOGIN PASSWORD NULL", "login " + name + ": shut it out"}}
}

func dropLogin(w instanceapi.DeclaredRole, name string) change {
	return change{declaredEntry{aRole, w.Name}, "DROP ROLE " + pq.QuoteIdentifier(name), "login " + name + ": drop it, since nobody logs in with it"}
}

// oneChange makes one change of the role of all those of a login.
func oneChange(w instanceapi.DeclaredRole, name string, parts []change) []change {
	if len(parts) == 0 {
		return nil
	}
	var statements, words []string
	for _, part := range parts {
		statements, words = append(statements, part.SQL), append(words, part.What)
	}
	return []change{{declaredEntry{aRole, w.Name}, strings.Join(statements, "; "), "login " + name + ": " + strings.Join(words, ", ")}}
}

// foundSetting is what ALTER ROLE … SET says, in one database or, if that is empty, in all.
type foundSetting struct{ Database, Name string }

// planSettings gives a login the settings of its role, which count for who logs in, and
// lets its sessions act as the role.
func planSettings(role, login string, found foundServer) []change {
	want := maps.Clone(found.Settings[role])
	if want == nil {
		want = map[foundSetting]string{}
	}
	maps.DeleteFunc(want, func(s foundSetting, _ string) bool { return s.Name == "role" })
	want[foundSetting{Name: "role"}] = role
	have := found.Settings[login]
	var plan []change
	alter := func(s foundSetting) string {
		text := "ALTER ROLE " + pq.QuoteIdentifier(login)
		if s.Database != "" {
			text += " IN DATABASE " + pq.QuoteIdentifier(s.Database)
		}
		return text
	}
	for _, s := range sortedSettings(have) {
		if _, wanted := want[s]; !wanted {
			plan = append(plan, change{SQL: alter(s) + " RESET " + settingName(s.Name), What: "RESET " + s.Name})
		}
	}
	for _, s := range sortedSettings(want) {
		value := want[s]
		if now, is := have[s]; is && now == value {
			continue
		}
		set := alter(s) + " SET " + settingName(s.Name) + " TO " + pq.QuoteLiteral(value)
		if isNameList(s.Name) { // as a literal it would be one name
			set = fmt.Sprintf("SELECT set_config(%s, %s, true); %s SET %s FROM CURRENT", pq.QuoteLiteral(s.Name), pq.QuoteLiteral(value), alter(s), settingName(s.Name))
		}
		plan = append(plan, change{SQL: set, What: "SET " + s.Name})
	}
	return plan
}

// settingName quotes each part of a name such as app.tenant.
func settingName(name string) string {
	parts := strings.Split(name, ".")
	for i, part := range parts {
		parts[i] = pq.QuoteIdentifier(part)
	}
	return strings.Join(parts, ".")
}

// isNameList says whether the server keeps the setting as a list of quoted names.
func isNameList(setting string) bool {
	return slices.Contains([]string{"search_path", "temp_tablespaces", "local_preload_libraries", "session_preload_libraries", "shared_preload_libraries", "unix_socket_directories"}, strings.ToLower(setting))
}

func sortedSettings(settings map[foundSetting]string) []foundSetting {
	return slices.SortedFunc(maps.Keys(settings), func(a, b foundSetting) int {
		return strings.Compare(a.Database+"\x00"+a.Name, b.Database+"\x00"+b.Name)
	})
}
