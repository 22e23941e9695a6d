// Package store reads and writes secrets of any HTTP API, by requests that are
// templates of the config. A key never decides where a request goes; an
// address inside of the provider's network is not dialled unless whoever runs
// the provider allows it; and no answer is ever quoted.
package store
