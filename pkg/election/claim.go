package election

// Claimant is an instance that asks whether it may reign, and its data.
type Claimant struct {
	Instance string
	// DataID identifies what is in the data directory; empty while it is being
	// written.
	DataID   string
	SystemID string
	// Initialised is true for the instance that ran initdb in this life of its
	// volume, as long as nobody has reigned.
	Initialised bool
	// LastReign is the last record that the instance keeps on its volume, and
	// LastHolder who held it: a cluster whose Lease was lost is taken back by
	// the data that reigned last.
	LastReign  Record
	LastHolder string
	// Outsider is true for an instance that the cluster's configuration does not name:
	// it was given up, or its data is from before a restore.
	Outsider bool
}

// MayClaim says whether c may take the Lease whose record is r and whose last
// holder was the instance named holder, and if not, why not.
//
// Invariant: at most one volume of a cluster may ever claim. While the Lease
// has a record, that is the holder's own data; else it is the data that
// reigned last, as the volumes remember, or the volume that ran initdb.
func MayClaim(c Claimant, r Record, holder string) (bool, string) {
	if c.DataID == "" {
		return false, "its data directory is not complete"
	}
	if r.IsEmpty() {
		return mayClaimFirst(c)
	}
	switch {
	case holder != c.Instance:
		return false, "the Lease is held by " + holder
	case r.HolderDataID != c.DataID:
		return false, "the Lease speaks of other data than this volume holds"
	case r.SystemID != c.SystemID:
		return false, "the Lease speaks of another database than this volume holds"
	}
	return true, ""
}

func mayClaimFirst(c Claimant) (bool, string) {
	switch {
	case c.Outsider:
		return false, "the Lease has no record, and the cluster does not count on this instance any more"
	case c.LastReign.IsEmpty() && c.Initialised:
		return true, ""
	case c.LastReign.IsEmpty():
		return false, "the Lease has no record, and this volume remembers no reign"
	case c.LastHolder != c.Instance || c.LastReign.HolderDataID != c.DataID:
		return false, "the Lease has no record; the last reign was of " + c.LastHolder
	}
	return true, ""
}
