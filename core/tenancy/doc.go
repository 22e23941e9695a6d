// Package tenancy is a model of who may reach what through a store: a second
// statement of the rules, by which tests hold the resolver and the running
// operator to the first. It imports the API and nothing of the operator, and
// must stay so.
package tenancy
