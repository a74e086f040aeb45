package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/pki"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// certificateStatuses says until when the cluster's certificates are valid. Of an
// instance it is those that it uses, as far as it says so.
func certificateStatuses(o Observation, p Plan, failures []Failure) []v1.CertificateStatus {
	rows := map[string]v1.CertificateStatus{}
	add := func(secret string, ends time.Time, message string) {
		if !ends.IsZero() {
			rows[secret] = v1.CertificateStatus{Secret: secret, NotAfter: metav1.NewTime(ends), Message: limit(message)}
		}
	}
	if ca := o.Secrets[specs.CASecret(o.Cluster.Name)]; ca != nil {
		cert := ca.Data[specs.CertKey]
		add(ca.Name, pki.FirstEnd(cert), notRenewed(o, p, failures, ca, pki.IsAuthorityEnding(cert, o.Now), pki.FirstEnd(cert)))
	}
	if operator := o.Secrets[specs.OperatorSecret(o.Cluster.Name)]; operator != nil {
		cert := operator.Data[specs.CertKey]
		add(operator.Name, pki.FirstEnd(cert), notRenewed(o, p, failures, operator, pki.IsLeafEnding(cert, o.Now), pki.FirstEnd(cert)))
	}
	for _, name := range p.Members {
		if secret := o.Secrets[specs.TLSSecret(name)]; secret != nil {
			ends, message := endOfInstance(o, p, failures, find(o, name), secret)
			add(secret.Name, ends, message)
		}
	}
	for name, secret := range o.Secrets {
		if specs.IsClientSecret(o.Cluster.Name, name) {
			cert := secret.Data[specs.CertKey]
			add(name, pki.FirstEnd(cert), notRenewed(o, p, failures, secret, pki.IsLeafEnding(cert, o.Now), pki.FirstEnd(cert)))
		}
	}
	if theirs := o.Cluster.Spec.TLS.ServerSecret; theirs != "" {
		ends, message := endOfTheirs(o, p)
		add(theirs, ends, message)
	}
	all := slices.Collect(maps.Values(rows))
	slices.SortFunc(all, func(a, b v1.CertificateStatus) int { return cmp.Compare(a.Secret, b.Secret) })
	return all
}

// notRenewed says why a certificate of the operator's that is due is not renewed;
// empty if it is not due, or nothing has kept it from being renewed yet.
func notRenewed(o Observation, p Plan, failures []Failure, secret *corev1.Secret, due bool, ends time.Time) string {
	if !due {
		return ""
	}
	text := fmt.Sprintf("it ends on %s and ", ends.UTC().Format(time.DateOnly))
	if p.Paused {
		return text + "is not renewed while spec.paused is true; set it to false"
	}
	if slices.ContainsFunc(failures, func(f Failure) bool {
		return kindOf(f.Action.Object) == "Secret" && f.Action.Object.GetName() == secret.Name
	}) {
		return text + "could not be renewed; the condition Progressing says why"
	}
	if before := statusOf(o, secret.Name); before != nil {
		return before.Message // until it is renewed
	}
	return ""
}

// endOfInstance is when the first of an instance's certificates ends that it uses, and
// what is wrong with that.
func endOfInstance(o Observation, p Plan, failures []Failure, i Instance, secret *corev1.Secret) (ends time.Time, message string) {
	server, replication := secret.Data[specs.CertKey], secret.Data[specs.ReplicationCertKey]
	ends = pki.FirstEnd(server, replication)
	due := pki.IsLeafEnding(server, o.Now) || pki.IsLeafEnding(replication, o.Now)
	if message := notRenewed(o, p, failures, secret, due, ends); message != "" || i.Pod == nil || usesCredentials(i, secret) {
		return ends, message
	}
	before := statusOf(o, secret.Name)
	if before == nil || !before.NotAfter.Time.Before(ends) {
		return ends, ""
	}
	if used := before.NotAfter.Time; pki.IsLate(server, used, o.Now) {
		message = fmt.Sprintf("%s still uses a certificate that ends on %s, since the renewed one has not reached it, or it does not answer; see the node's kubelet, or delete the pod", i.Name, used.UTC().Format(time.DateOnly))
	}
	return before.NotAfter.Time, message
}

func statusOf(o Observation, secret string) *v1.CertificateStatus {
	n := slices.IndexFunc(o.Cluster.Status.Certificates, func(c v1.CertificateStatus) bool { return c.Secret == secret })
	if n < 0 {
		return nil
	}
	return &o.Cluster.Status.Certificates[n]
}

// endOfTheirs is when the certificate of spec.tls ends that servers show; zero while
// they show none.
func endOfTheirs(o Observation, p Plan) (ends time.Time, message string) {
	before := statusOf(o, o.Cluster.Spec.TLS.ServerSecret)
	var shown []byte
	settled := true
	for _, name := range p.Members {
		i, secret := find(o, name), o.Secrets[specs.TLSSecret(name)]
		if secret == nil || len(secret.Data[specs.ServerCertKey]) == 0 {
			continue
		}
		settled = settled && usesCredentials(i, secret)
		if cert := secret.Data[specs.ServerCertKey]; shown == nil || pki.FirstEnd(cert).Before(pki.FirstEnd(shown)) {
			shown = cert
		}
	}
	switch {
	case shown == nil:
		return time.Time{}, ""
	case !settled && before != nil:
		ends = before.NotAfter.Time // as far as is known, somebody still shows it
	case string(shown) == string(p.Serving.Wanted.Cert):
		ends = p.Serving.Until // or when its authority ends, if that is before
	default:
		ends = pki.FirstEnd(shown)
	}
	if pki.IsForgotten(shown, ends, o.Now) {
		message = fmt.Sprintf("it ends on %s and only you can renew it: put another into the Secret", ends.UTC().Format(time.DateOnly))
	}
	return ends, message
}

// certificatesValid says whether servers show what is asked for, and nothing in use
// ends soon. While nobody can say, it stays as it was.
func certificatesValid(o Observation, p Plan, rows []v1.CertificateStatus) metav1.Condition {
	const kind = v1.ConditionCertificatesValid
	var ending []string
	for _, row := range rows {
		if row.Message != "" {
			ending = append(ending, "the certificate of Secret "+row.Secret+": "+row.Message)
		}
	}
	s, named := p.Serving, o.Cluster.Spec.TLS.ServerSecret
	before := meta.FindStatusCondition(o.Cluster.Status.Conditions, kind)
	switch {
	case s.Refused != "" && len(s.Shown.Cert) > 0:
		return no(kind, v1.ReasonServerCertificateRefused, limit(joined(s.Refused+"; servers go on with the certificate that they have", strings.Join(ending, "; "))))
	case s.Refused != "":
		return no(kind, v1.ReasonServerCertificateRefused, limit(joined(s.Refused+"; servers show certificates of the operator's until then", strings.Join(ending, "; "))))
	case len(ending) > 0:
		return no(kind, v1.ReasonCertificateEnds, limit(strings.Join(ending, "; ")))
	case s.Unknown != nil && before != nil && before.Reason != v1.ReasonIssuedByOperator:
		return metav1.Condition{Type: kind, Status: before.Status, Reason: before.Reason, Message: before.Message}
	case s.Unknown != nil:
		return no(kind, v1.ReasonServerCertificateNotYet, limit(s.Unknown.Error()))
	case s.Waits != "":
		return no(kind, v1.ReasonServerCertificateNotYet, limit(fmt.Sprintf("the certificate of Secret %s: %s", named, s.Waits)))
	case named != "" && !showsServing(o, p):
		return no(kind, v1.ReasonServerCertificateNotYet, fmt.Sprintf("the certificate of Secret %s is on its way to the servers", named))
	case named != "":
		return yes(kind, v1.ReasonServerCertificateShown, fmt.Sprintf("servers show the certificate of Secret %s", named))
	}
	return yes(kind, v1.ReasonIssuedByOperator, "")
}

// showsServing says whether every server that runs shows what is asked for.
func showsServing(o Observation, p Plan) bool {
	return allOf(p.Members, func(name string) bool {
		i, secret := find(o, name), o.Secrets[specs.TLSSecret(name)]
		return i.State == nil || secret != nil && string(secret.Data[specs.ServerCertKey]) == string(p.Serving.Wanted.Cert) && usesCredentials(i, secret)
	})
}

// newsOfCertificates are the certificates that people must hear of, and those of which
// they need not any more. Each is told once.
func newsOfCertificates(before, after v1.PostgresClusterStatus) []entryNews {
	was := map[string]string{}
	for _, c := range before.Certificates {
		was[c.Secret] = c.Message
	}
	var news []entryNews
	for _, c := range after.Certificates {
		what := "the certificate of Secret " + c.Secret
		switch {
		case c.Message != "" && c.Message != was[c.Secret]:
			news = append(news, entryNews{c.Secret, corev1.EventTypeWarning, v1.ReasonCertificateEnds, what + ": " + c.Message})
		case c.Message == "" && was[c.Secret] != "":
			news = append(news, entryNews{c.Secret, corev1.EventTypeNormal, v1.ReasonCertificateRenewed, fmt.Sprintf("%s is renewed and valid until %s", what, c.NotAfter.UTC().Format(time.DateOnly))})
		}
	}
	return news
}

// announceCertificates makes an event of each, as announceEntries does.
func (l *Loop) announceCertificates(c *v1.PostgresCluster, before, after v1.PostgresClusterStatus) {
	for _, n := range newsOfCertificates(before, after) {
		l.log.WithField("reason", n.Reason).Info(n.Note)
		l.Events.Eventf(c, nil, n.Kind, n.Reason, actionOf("Observe Secret "+n.Entry), "%s", noteOf(n.Note))
	}
}

// actionOf cuts a text to what the action of an event may be.
func actionOf(text string) string { return text[:min(len(text), 128)] }
