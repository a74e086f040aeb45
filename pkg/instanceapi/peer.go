package instanceapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Paths that agents ask one another; the operator does not.
const (
	// PeerPath answers GET with a Peer.
	PeerPath = "/v1/peer"
	// VotePath answers a POST of an election.VoteRequest with an election.Vote,
	// or with 409 if it is not granted.
	VotePath = "/v1/vote"
	// PromisePath answers a POST of an election.PromiseRequest with an
	// election.Promise, or with 409 if it is not given.
	PromisePath = "/v1/promise"
	// SwitchWALPath lets a primary end the segment of WAL that it writes, by POST of a
	// SwitchWAL: a backup of a replica needs it.
	SwitchWALPath = "/v1/switch-wal"
	// ConfigurationPath answers GET with a Configuration, or with 404 if there is none.
	ConfigurationPath = "/v1/configuration"
)

// Configuration is the last one with which an instance's server has started.
type Configuration struct {
	// Conf is postgresql.conf, HBA is pg_hba.conf, and Ident the user's part of
	// pg_ident.conf.
	Conf  string `json:"conf"`
	HBA   string `json:"hba"`
	Ident string `json:"ident,omitempty"`
}

// SwitchWAL asks a primary to end the segment that it writes, or for a checkpoint.
type SwitchWAL struct {
	// Beyond is a position: a primary that has ended its segment does nothing; 0: it
	// ends the segment in any case.
	Beyond postgres.LSN `json:"beyond,omitempty"`
	// Checkpoint asks it to begin a checkpoint instead.
	Checkpoint bool `json:"checkpoint,omitempty"`
}

// Switched is its answer.
type Switched struct {
	// End is where the primary's WAL ended before.
	End postgres.LSN `json:"end"`
}

// Peer is what an instance tells the others.
type Peer struct {
	Instance string `json:"instance"`
	Role     Role   `json:"role"`
	// Term is that of the reign that the instance leads or follows, and Sealed
	// the highest term that it has given its vote for.
	Term   uint64 `json:"term"`
	Sealed uint64 `json:"sealed"`
	DataID string `json:"dataID"`
	// Inspected is true once the instance has looked into its volume; until then
	// DataID, Sealed and LastReign say nothing.
	Inspected bool `json:"inspected,omitempty"`
	// LastReign is the last record of the Lease that the volume remembers.
	LastReign election.Record `json:"lastReign,omitzero"`
	// Timeline that a primary writes, with its History; Checkpointed is that of
	// its last checkpoint, which follows a while after a promotion.
	Timeline     uint32            `json:"timeline,omitempty"`
	History      []postgres.Switch `json:"history,omitempty"`
	Checkpointed uint32            `json:"checkpointed,omitempty"`
	// OldestWAL is the position from which on a primary has its WAL.
	OldestWAL postgres.LSN `json:"oldestWAL,omitempty"`
	// Slots are the positions that a primary keeps WAL from, by slot.
	Slots map[string]postgres.LSN `json:"slots,omitempty"`
	// Received is the end of the WAL that a replica has on disk.
	Received postgres.LSN `json:"received,omitempty"`
	// VolumeFree is what is free, in bytes, on the fuller of the instance's volumes.
	VolumeFree uint64 `json:"volumeFree,omitempty"`
}

// Peer asks the agent at address, given as host:port, what it tells others.
func (c *Client) Peer(ctx context.Context, address string) (Peer, error) {
	var peer Peer
	return peer, c.ask(ctx, http.MethodGet, address, PeerPath, nil, &peer)
}

// Vote asks the agent at address for its vote.
func (c *Client) Vote(ctx context.Context, address string, request election.VoteRequest) (election.Vote, error) {
	var vote election.Vote
	return vote, c.ask(ctx, http.MethodPost, address, VotePath, request, &vote)
}

// Promise asks the agent at address for its promise.
func (c *Client) Promise(ctx context.Context, address string, request election.PromiseRequest) (election.Promise, error) {
	var promise election.Promise
	return promise, c.ask(ctx, http.MethodPost, address, PromisePath, request, &promise)
}

// SwitchWAL asks the agent at address, which must be the primary's, to end the
// segment that its server writes.
func (c *Client) SwitchWAL(ctx context.Context, address string, request SwitchWAL) (Switched, error) {
	var answer Switched
	return answer, c.ask(ctx, http.MethodPost, address, SwitchWALPath, request, &answer)
}

// Configuration asks the agent at address with which configuration its server has
// started.
func (c *Client) Configuration(ctx context.Context, address string) (Configuration, error) {
	var answer Configuration
	return answer, c.ask(ctx, http.MethodGet, address, ConfigurationPath, nil, &answer)
}

// ask sends a request, with question as JSON unless it is nil, and reads the
// answer into answer.
func (c *Client) ask(ctx context.Context, method, address, path string, question, answer any) error {
	var body io.Reader
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return fmt.Errorf("ask agent at %s: %w", address, err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, body)
	if err != nil {
		return fmt.Errorf("ask agent at %s: %w", address, err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask agent at %s: %w", address, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask agent at %s: it answered %s", address, response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, largestAnswer)).Decode(answer); err != nil {
		return fmt.Errorf("ask agent at %s: read its answer: %w", address, err)
	}
	return nil
}
