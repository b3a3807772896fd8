// Package contract holds what NVIDIA's images, their users and their neighbours rely on in the objects of
// the operands: tables that are written from facts about these programs and never from our manifests. The
// test judges the rendered objects by them.
package contract
