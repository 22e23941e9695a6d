// Package report holds what a benchmark run found, and writes it as Markdown
// for people and as JSON for programs. It measures nothing itself.
package report
