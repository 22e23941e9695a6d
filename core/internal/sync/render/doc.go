// Package render renders the target out of what was fetched: rewriting and
// conversion of keys, decoding, templates, validation. It is pure, and its
// errors name entry, template and key, never a value.
package render
