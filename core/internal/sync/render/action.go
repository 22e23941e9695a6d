package render

import esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

// Action is what becomes of a target.
type Action int

const (
	// Written: what was rendered is applied to it.
	Written Action = iota
	// Deleted: the stores have nothing for it, and the policy deletes it.
	Deleted
	// Retained: the stores have nothing for it, and the policy leaves it as it
	// is.
	Retained
)

// Action of the target. Templates that need no value keep no target alive.
func (t *Target) Action() Action {
	switch {
	case t.Empty && t.Deletion == esv1.DeletionDelete:
		return Deleted
	case t.Empty && t.Deletion == esv1.DeletionRetain && t.Creation != esv1.CreationNone:
		return Retained
	default:
		return Written
	}
}
