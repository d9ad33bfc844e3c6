module bigfleet/controlplane/pause

go 1.26.0
