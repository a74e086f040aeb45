//go:build race

package election

// defaultSeeds are few, since the race detector makes each ten times as slow.
const defaultSeeds = 60
