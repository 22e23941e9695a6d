// Package ca is the operator's own certificate authority: it keeps the
// CA in a Secret of the operator's namespace, renews it with an overlap, and
// issues short-lived certificates: the operator's for itself, which never
// leaves its memory, and one per provider. The CA's key leaves that Secret
// only for this process's memory.
package ca
