package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// plannedSchedule is what the status is to say of a schedule, and the backup that is
// made now; nil: none.
type plannedSchedule struct {
	v1.ScheduleStatus
	Create *v1.PostgresBackup
	// before is what the status says until that is made.
	before v1.ScheduleStatus
}

// checkSchedules refuses schedules that never come, by the field.
func checkSchedules(c *v1.PostgresCluster) error {
	if c.Spec.Backup == nil {
		return nil
	}
	var errs []error
	for _, s := range c.Spec.Backup.Schedules {
		field := fmt.Sprintf("spec.backup.schedules[%s]", s.Name)
		if _, err := backup.ParseSchedule(s.Cron, ""); err != nil {
			errs = append(errs, fmt.Errorf("%s.cron: %w", field, err))
		} else if _, err := backup.ParseSchedule(s.Cron, s.TimeZone); err != nil {
			errs = append(errs, fmt.Errorf("%s.timeZone: %w", field, err))
		}
		if s.Type == v1.BackupIncremental && c.Spec.Postgres.Version < specs.IncrementalSince {
			errs = append(errs, fmt.Errorf("%s.type: incremental backups need PostgreSQL %d, and this cluster has %d; set full", field, specs.IncrementalSince, c.Spec.Postgres.Version))
		}
	}
	if v := c.Spec.Backup.Verify; v != nil {
		const field = "spec.backup.verify"
		if _, err := backup.ParseSchedule(v.Cron, ""); err != nil {
			errs = append(errs, fmt.Errorf("%s.cron: %w", field, err))
		} else if _, err := backup.ParseSchedule(v.Cron, v.TimeZone); err != nil {
			errs = append(errs, fmt.Errorf("%s.timeZone: %w", field, err))
		}
	}
	return errors.Join(errs...)
}

// planSchedules makes the backups that are due. What was missed is made up once, by
// one backup with the time of the last that was due. One that is due while that
// before it has not ended waits for its end: a backup that takes longer than the time
// between two leaves no heap.
func planSchedules(o Observation, p *Plan) {
	if o.Cluster.Spec.Backup == nil {
		return
	}
	for _, asked := range o.Cluster.Spec.Backup.Schedules {
		row := v1.ScheduleStatus{Name: asked.Name}
		if before := o.Cluster.Status.Backup; before != nil {
			if n := slices.IndexFunc(before.Schedules, func(s v1.ScheduleStatus) bool { return s.Name == asked.Name }); n >= 0 {
				row = *before.Schedules[n].DeepCopy()
			}
		}
		s, err := backup.ParseSchedule(asked.Cron, asked.TimeZone)
		if err != nil { // SpecAccepted says so
			p.Schedules = append(p.Schedules, plannedSchedule{ScheduleStatus: v1.ScheduleStatus{Name: asked.Name, Last: row.Last}})
			continue
		}
		planned := planSchedule(o, asked, s, row)
		p.Schedules = append(p.Schedules, planned)
		if planned.Create != nil {
			p.create(planned.Create, "", "")
		}
	}
}

func planSchedule(o Observation, asked v1.BackupSchedule, s backup.Schedule, row v1.ScheduleStatus) plannedSchedule {
	if row.Next == nil || !s.Next(row.Next.Add(-time.Second)).Equal(row.Next.Time) {
		// It is new, or comes at other times than before.
		row.Next, row.Message = stamp(s.Next(o.Now)), ""
	}
	if row.Next.After(o.Now) {
		return plannedSchedule{ScheduleStatus: row}
	}
	if row.Message = whyNotDue(o, asked); row.Message != "" {
		return plannedSchedule{ScheduleStatus: row}
	}
	due := lastDue(s, row.Next.Time, o.Now)
	after := v1.ScheduleStatus{Name: asked.Name, Next: stamp(s.Next(o.Now)), Last: stamp(due)}
	name := fmt.Sprintf("%s-%s-%s", o.Cluster.Name, asked.Name, due.UTC().Format("20060102-1504"))
	return plannedSchedule{ScheduleStatus: after, before: row, Create: specs.Backup(o.Cluster, name, asked.Type, asked.Name, "")}
}

// whyNotDue is why no backup of a schedule is made although one is due.
func whyNotDue(o Observation, asked v1.BackupSchedule) string {
	switch {
	case o.Cluster.Spec.Paused:
		return "spec.paused is true; it is made up once afterwards"
	case *o.Cluster.Spec.Instances == 0:
		return "the cluster is stopped; it is made up once when it runs again"
	}
	for _, b := range o.Backups {
		if b.Labels[specs.ScheduleLabel] == asked.Name && !hasEnded(b) && b.DeletionTimestamp == nil {
			return fmt.Sprintf("it waits until %s has ended", b.Name)
		}
	}
	return ""
}

// longMiss is the time for which a schedule is followed run by run. Of one that was
// missed for longer, the last run is looked for in that time first.
const longMiss = 48 * time.Hour

// lastDue is the last time of the schedule that is not after now; first is one.
func lastDue(s backup.Schedule, first, now time.Time) time.Time {
	due := first
	if now.Sub(first) > longMiss {
		if later := s.Next(now.Add(-longMiss)); !later.After(now) {
			due = later
		}
	}
	for next := s.Next(due); !next.After(now) && next.After(due); next = s.Next(due) {
		due = next
	}
	return due
}

// scheduleStatuses are the rows of the status. One whose backup could not be made
// stays due.
func scheduleStatuses(o Observation, p Plan, failures []Failure) []v1.ScheduleStatus {
	var rows []v1.ScheduleStatus
	for _, s := range p.Schedules {
		failed := slices.ContainsFunc(failures, func(f Failure) bool { return s.Create != nil && f.Action.Object == object(s.Create) })
		if failed || s.Create != nil && p.Paused {
			rows = append(rows, s.before)
			continue
		}
		rows = append(rows, s.ScheduleStatus)
	}
	return rows
}
