//go:build !race

package election

const defaultSeeds = 500
