"""One simulated cluster: workload, scheduler, pod controller, operator."""
