// Package digest identifies contents by short digests. Annotations and names of objects contain them: another algorithm
// or length would make every object differ from what was applied.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// size is the number of bytes of the SHA-256 that a digest keeps.
const size = 8

// Of returns the digest of the content: 16 hexadecimal digits.
func Of[T ~string | ~[]byte](content T) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:size])
}

// Digest computes the digest of all that is written to it. Create one with New.
type Digest struct{ hash hash.Hash }

// New returns an empty Digest.
func New() *Digest { return &Digest{hash: sha256.New()} }

// Write adds content. It never returns an error.
func (d *Digest) Write(content []byte) (int, error) { return d.hash.Write(content) }

// String returns the digest of what was written so far, in the form of Of.
func (d *Digest) String() string { return hex.EncodeToString(d.hash.Sum(nil)[:size]) }
