"""Who calls, and what they may call: identities, certificates, the authorization table."""
