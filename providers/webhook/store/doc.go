// Package store reads and writes secrets of any HTTP API, by requests that are
// templates of the config. Keys cannot change the destination of a request;
// addresses inside of the provider's network are refused unless a flag allows them;
// and errors never quote an answer.
package store
