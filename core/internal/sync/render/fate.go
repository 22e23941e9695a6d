package render

import esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

// Fate is what becomes of a target.
type Fate int

const (
	// Written: it is made to be what was rendered.
	Written Fate = iota
	// Deleted: the stores have nothing for it, and the policy deletes it.
	Deleted
	// Retained: the stores have nothing for it, and the policy leaves it as it
	// is.
	Retained
)

// Fate of the target. Templates that need no value keep no target alive.
func (t *Target) Fate() Fate {
	switch {
	case t.Empty && t.Deletion == esv1.DeletionDelete:
		return Deleted
	case t.Empty && t.Deletion == esv1.DeletionRetain && t.Creation != esv1.CreationNone:
		return Retained
	default:
		return Written
	}
}
