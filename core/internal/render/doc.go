// Package render makes the target's data out of what was fetched: decoding,
// conversion of keys, validation. It is pure, and its errors name entry and
// key, never a value.
package render
