// Package digest identifies contents by short digests. They are stored in clusters, in annotations and in the names of
// objects: another algorithm or length would make every object differ from what was applied.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// size is how many bytes of the SHA-256 a digest has.
const size = 8

// Of returns the digest of the content: 16 hexadecimal digits.
func Of[T ~string | ~[]byte](content T) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:size])
}

// Digest is the digest of all that is written to it. Make one with New.
type Digest struct{ hash hash.Hash }

// New returns the Digest of no content.
func New() *Digest { return &Digest{hash: sha256.New()} }

// Write adds content. It never returns an error.
func (d *Digest) Write(content []byte) (int, error) { return d.hash.Write(content) }

// String returns the digest of what was written so far, as Of does.
func (d *Digest) String() string { return hex.EncodeToString(d.hash.Sum(nil)[:size]) }
