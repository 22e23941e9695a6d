// Package externalsecret keeps ExternalSecrets in sync: plan, fetch, render,
// apply, report. Each step is a package of its own; this one only connects
// them and decides when.
package externalsecret
