package specs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Configuration is what the operator tells the agents beyond the spec.
type Configuration struct {
	// SystemID is the database's system identifier, empty until it is known.
	SystemID string
	// Members are the names of the instances.
	Members []string
	// Blank are those of them that can remember no reign.
	Blank []string
	// Initialiser may run initdb; empty: nobody.
	Initialiser string
	// Stop says that the cluster is to stop.
	Stop bool
	// WALRoom is the size, in bytes, of the smallest volume that holds WAL beside
	// data; a WAL volume counts twice. 0: as the spec asks.
	WALRoom int64

	// Switchover, Reclone and ForcePromote are what was asked for, and
	// SwitchoverAsked is when the first was.
	Switchover      *instanceapi.Switchover
	SwitchoverAsked time.Time
	Reclone         *instanceapi.Reclone
	ForcePromote    *instanceapi.ForcePromote
	// Restart is the server that is to restart in its place.
	Restart *instanceapi.Restart
	// Restore is the backup that a new instance is made of in a cluster that is rolled
	// back.
	Restore *instanceapi.Restore
	// Clone is the server that the first database is a copy of; nil: none is known.
	Clone *instanceapi.Clone
	// TakeBackup is the base backup that is to be taken.
	TakeBackup *instanceapi.TakeBackup
}

// CheckConfiguration says what in the server's configuration the operator
// refuses, one error for each field, with the way out.
func CheckConfiguration(c *v1.PostgresCluster) error {
	given, err := parameters(c)
	err = errors.Join(err, checkMemory(c, postgres.Merge(nil, given)), checkReplicas(c, postgres.Merge(postgres.Defaults(0), given)),
		checkReplication(c, postgres.Merge(nil, given)), checkPod(c), checkDeclared(c))
	if hbaErr := postgres.CheckHBA(c.Spec.Postgres.HBA); hbaErr != nil {
		err = errors.Join(err, fmt.Errorf("spec.postgres.hba: %w", hbaErr))
	}
	if identErr := postgres.CheckIdent(c.Spec.Postgres.Ident); identErr != nil {
		err = errors.Join(err, fmt.Errorf("spec.postgres.ident: %w", identErr))
	}
	return err
}

// NewConfigMap is how the agents are configured. Its error is that of
// CheckConfiguration.
func NewConfigMap(c *v1.PostgresCluster, config Configuration) (*corev1.ConfigMap, error) {
	if err := CheckConfiguration(c); err != nil {
		return nil, err
	}
	asked, err := parameters(c)
	if err != nil {
		return nil, err
	}
	defaults := postgres.Merge(postgres.Defaults(cmp.Or(config.WALRoom, WALRoom(c.Spec.Storage))), archiving(c))
	all := postgres.Merge(defaults, asked)
	text, err := json.MarshalIndent(instanceapi.Config{
		Cluster:      c.Name,
		SystemID:     config.SystemID,
		Members:      config.Members,
		Blank:        config.Blank,
		Bootstrap:    bootstrapOf(c, config),
		HA:           haOf(c),
		Declared:     DeclaredOf(c),
		Owner:        instanceapi.OwnerLogin{Secret: OwnerSecret(c)},
		Stop:         config.Stop,
		Switchover:   config.Switchover,
		Reclone:      config.Reclone,
		ForcePromote: config.ForcePromote,
		Restart:      config.Restart,
		Backups:      backupsOf(c),
		TakeBackup:   config.TakeBackup,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("marshal configuration of cluster %s: %w", c.Name, err)
	}
	pods, err := podFields(c)
	if err != nil {
		return nil, err
	}
	made := &corev1.ConfigMap{
		ObjectMeta: objectMeta(c, ConfigMap(c.Name)),
		Data: map[string]string{
			instanceapi.ConfigKey:       string(text),
			instanceapi.PostgresConfKey: postgres.RenderConf(all),
			instanceapi.HBAKey:          postgres.RenderHBA(c.Spec.Postgres.HBA, certifiedRoles(c)...),
			instanceapi.IdentKey:        postgres.RenderUserMaps(c.Spec.Postgres.Ident),
			acceptedKey:                 pods,
		},
	}
	noteSwitchover(made, config)
	return made, nil
}

// bootstrapOf is how the first database is made, by that instance.
func bootstrapOf(c *v1.PostgresCluster, config Configuration) instanceapi.Bootstrap {
	database, owner := c.Spec.Bootstrap.Application()
	b := instanceapi.Bootstrap{Instance: config.Initialiser, Database: database, Owner: owner}
	if initdb := c.Spec.Bootstrap.Initdb; initdb != nil {
		b.Locale, b.Encoding, b.DataChecksums, b.SQL = initdb.Locale, initdb.Encoding, *initdb.DataChecksums, initdb.SQL
	}
	b.Clone = config.Clone
	if b.Restore = config.Restore; b.Restore == nil {
		b.Restore = restoreOf(c)
	}
	return b
}

// WALRoom is Configuration.WALRoom for volumes of the sizes that the spec asks for.
func WALRoom(s v1.StorageSpec) int64 {
	if s.WAL != nil {
		return 2 * s.WAL.Size.Value()
	}
	return s.Size.Value()
}

// noteSwitchover notes on the ConfigMap when the switchover in it was asked for.
func noteSwitchover(c *corev1.ConfigMap, config Configuration) {
	if config.Switchover == nil {
		delete(c.Annotations, SwitchoverAskedAnnotation)
		return
	}
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, SwitchoverAskedAnnotation, config.SwitchoverAsked.UTC().Format(time.RFC3339))
}

// SwitchoverAsked is when the switchover in a ConfigMap was asked for; the zero
// time if nobody knows, or there is none.
func SwitchoverAsked(c *corev1.ConfigMap) time.Time {
	if c == nil {
		return time.Time{}
	}
	asked, err := time.Parse(time.RFC3339, c.Annotations[SwitchoverAskedAnnotation])
	if err != nil {
		return time.Time{} // somebody edited it; it is asked for anew
	}
	return asked
}

// ReconfigureConfigMap returns live with what config says, and with the rest of
// the configuration that it holds, or nil if it is so. A ConfigMap that can't be
// read stays as it is.
func ReconfigureConfigMap(live *corev1.ConfigMap, config Configuration) *corev1.ConfigMap {
	held, err := instanceapi.ParseConfig(live.Data[instanceapi.ConfigKey])
	if err != nil {
		return nil // until the spec is accepted there is nothing to make it anew from
	}
	before := held.Bootstrap
	held.SystemID, held.Members, held.Blank, held.Bootstrap.Instance = config.SystemID, config.Members, config.Blank, config.Initialiser
	held.Stop, held.Switchover, held.Reclone, held.ForcePromote, held.Restart = config.Stop, config.Switchover, config.Reclone, config.ForcePromote, config.Restart
	held.TakeBackup = config.TakeBackup
	if held.Bootstrap.Restore = config.Restore; config.SystemID == "" && config.Restore == nil {
		held.Bootstrap.Restore = before.Restore
	}
	if held.Bootstrap.Clone = config.Clone; config.SystemID == "" && config.Clone == nil {
		held.Bootstrap.Clone = before.Clone
	}
	text, err := json.MarshalIndent(held, "", "  ")
	if err != nil {
		return nil
	}
	changed := live.DeepCopy()
	changed.Data[instanceapi.ConfigKey] = string(text)
	noteSwitchover(changed, config)
	if equality.Semantic.DeepEqual(changed, live) {
		return nil
	}
	return changed
}

// parameters are the user's, as texts, without those that are refused.
func parameters(c *v1.PostgresCluster) (map[string]string, error) {
	texts := map[string]string{}
	given := map[string]string{} // by name in lower case
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Spec.Postgres.Parameters)) {
		text, err := c.Spec.Postgres.Parameters[name].Text()
		if err == nil {
			err = postgres.CheckParameter(name, text)
		}
		if other, twice := given[strings.ToLower(name)]; err == nil && twice {
			err = fmt.Errorf("given twice, as %s and as %s; keep one", other, name)
		}
		given[strings.ToLower(name)] = name
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.postgres.parameters[%s]: %w", name, err))
			continue
		}
		texts[name] = text
	}
	return texts, errors.Join(errs...)
}

// RepairConfigMap returns live with the data and labels of want, and with its
// note of a switchover, or nil if it has them.
func RepairConfigMap(live, want *corev1.ConfigMap) *corev1.ConfigMap {
	asked, isAsked := want.Annotations[SwitchoverAskedAnnotation]
	if maps.Equal(live.Data, want.Data) && hasLabels(live.Labels, want.Labels) && live.Annotations[SwitchoverAskedAnnotation] == asked {
		return nil
	}
	repaired := live.DeepCopy()
	repaired.Data = want.Data
	repaired.Labels = withLabels(live.Labels, want.Labels)
	delete(repaired.Annotations, SwitchoverAskedAnnotation)
	if isAsked {
		metav1.SetMetaDataAnnotation(&repaired.ObjectMeta, SwitchoverAskedAnnotation, asked)
	}
	return repaired
}

// checkReplicas refuses more instances than can stream at once.
func checkReplicas(c *v1.PostgresCluster, parameters map[string]string) error {
	instances := int64(*c.Spec.Instances)
	for _, name := range []string{"max_wal_senders", "max_replication_slots"} {
		room, err := strconv.ParseInt(strings.TrimSpace(parameters[name]), 0, 32)
		if err == nil && room < instances {
			return fmt.Errorf("spec.postgres.parameters[%s]: %d are too few for the %d of spec.instances; set at least %d", name, room, instances, instances)
		}
	}
	return nil // what is no number was refused before
}
