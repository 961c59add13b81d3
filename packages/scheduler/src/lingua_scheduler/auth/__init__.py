"""Access control: tokens, what they allow, and sockets whose token ends.

    tokens      what a token grants: `ClientGrant`, `NodeGrant`
    gate        reads and checks tokens if keys are set
    policy      what a grant allows: speech, rooms, languages, labels
    expiry      open sockets whose token expires or is revoked
    bearer      the one parser of `Authorization: Bearer TOKEN`

Every entry point of the service (WebSockets, HTTP, OpenAI's API) asks here.
"""
