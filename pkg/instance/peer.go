package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// peerHandlers answer the other instances.
func (a *Agent) peerHandlers(mux *http.ServeMux) {
	mux.HandleFunc("GET "+instanceapi.PeerPath, peersOnly(func(w http.ResponseWriter, r *http.Request) {
		answerJSON(w, a.peer(r.Context()))
	}))
	mux.HandleFunc("POST "+instanceapi.VotePath, peersOnly(answerQuestion(func(q election.VoteRequest) <-chan election.Vote {
		return a.inbox.askVote(q)
	})))
	mux.HandleFunc("POST "+instanceapi.PromisePath, peersOnly(answerQuestion(func(q election.PromiseRequest) <-chan election.Promise {
		return a.inbox.askPromise(q)
	})))
	mux.HandleFunc("POST "+instanceapi.SwitchWALPath, peersOnly(a.answerSwitchWAL))
	mux.HandleFunc("GET "+instanceapi.ConfigurationPath, peersOnly(a.answerConfiguration))
}

// answerConfiguration tells with which configuration the server has started.
func (a *Agent) answerConfiguration(w http.ResponseWriter, _ *http.Request) {
	good, err := a.config.kept(goodDir)
	if err != nil || good.isZero() {
		http.Error(w, "no configuration is known to be good", http.StatusNotFound)
		return
	}
	answerJSON(w, instanceapi.Configuration{Conf: good.Conf, HBA: good.HBA, Ident: good.Ident})
}

// peersOnly lets in who has an instance's certificate.
func peersOnly(next http.HandlerFunc) http.HandlerFunc {
	return only(postgres.ReplicationRole, "this is for instances of the cluster", next)
}

// operatorOnly lets in the operator.
func operatorOnly(next http.HandlerFunc) http.HandlerFunc {
	return only(instanceapi.OperatorName, "this is for the operator", next)
}

func only(name, refusal string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || r.TLS.PeerCertificates[0].Subject.CommonName != name {
			http.Error(w, refusal, http.StatusForbidden)
			return
		}
		next(w, r)
	}
}

// answerQuestion reads a question, has it asked, and waits for the answer. None
// in time means no.
func answerQuestion[Q, A any](ask func(Q) <-chan A) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var question Q
		const largest = 4 << 10
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largest)).Decode(&question); err != nil {
			http.Error(w, "can't read the question", http.StatusBadRequest)
			return
		}
		select {
		case answer := <-ask(question):
			answerJSON(w, answer)
		case <-time.After(patience):
			w.WriteHeader(http.StatusConflict)
		case <-r.Context().Done():
		}
	}
}

func answerJSON(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // an error means that the client has gone
}

// peer is what this instance tells the others.
func (a *Agent) peer(ctx context.Context) instanceapi.Peer {
	state := a.State(ctx)
	peer := instanceapi.Peer{Instance: state.Instance, Role: state.Role, Term: a.view.knownLease().Record.Term,
		Sealed: state.Sealed, DataID: state.DataID, Inspected: state.Inspected, LastReign: state.LastReign}
	if free, err := a.volume.leastFree(); err == nil { // else it is not known
		peer.VolumeFree = free
	}
	if state.Role != instanceapi.RolePrimary {
		for _, text := range []string{state.ReceivedLSN, state.ReplayedLSN} {
			if at, err := postgres.ParseLSN(text); err == nil {
				peer.Received = max(peer.Received, at)
			}
		}
		return peer
	}
	peer.Timeline = state.Timeline
	if err := a.describePast(ctx, &peer); err != nil {
		a.log.WithError(err).Warn("can't tell another instance of this one's past")
		peer.Timeline = 0 // nothing is decided by it
	}
	return peer
}

// describePast adds what a replica needs to know to follow this primary.
func (a *Agent) describePast(ctx context.Context, peer *instanceapi.Peer) error {
	// It ends by itself: an answer that is cut off would cut the connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var err error
	if peer.History, err = a.volume.history(peer.Timeline); err != nil {
		return err
	}
	var segment uint64
	if err := a.peerSQL.Row(ctx, `SELECT timeline_id, (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size') FROM pg_control_checkpoint()`,
		&peer.Checkpointed, &segment); err != nil {
		return fmt.Errorf("ask for the last checkpoint: %w", err)
	}
	files, err := a.volume.walFiles()
	if err != nil {
		return err
	}
	peer.OldestWAL = postgres.OldestWAL(files, segment)
	peer.Slots = map[string]postgres.LSN{}
	return a.peerSQL.Rows(ctx, "SELECT slot_name, restart_lsn::text FROM pg_replication_slots WHERE slot_type = 'physical' AND restart_lsn IS NOT NULL",
		func(scan func(...any) error) error {
			var name, at string
			if err := scan(&name, &at); err != nil {
				return err
			}
			position, err := postgres.ParseLSN(at)
			peer.Slots[name] = position
			return err
		})
}

// askAbsent asks the instances that do not stream whether they have voted for
// another reign: a holder that does not know would wait for them forever.
func (a *Agent) askAbsent(streaming []election.Standby) {
	if time.Since(a.askedAbsent) < time.Second {
		return
	}
	a.askedAbsent = time.Now()
	record := a.view.knownLease().Record
	for _, name := range a.view.knownConfig().Config.Members {
		streams := slices.ContainsFunc(streaming, func(s election.Standby) bool { return s.Instance == name })
		if name == a.options.Instance || streams || record.Addresses[name] == "" && !slices.ContainsFunc(record.Members, func(m election.Member) bool { return m.Instance == name }) {
			continue
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			// One that is away has no say; nor may one be outvoted by a higher term that
			// remembers a newer reign, of which the Lease does not tell.
			if peer, err := a.peers.peer(ctx, name); err == nil && peer.LastReign.Term <= record.Term {
				a.inbox.noteSealed(peer.Sealed)
			}
		}()
	}
}
