"""The federated HPA's controller: sees, lets the rules decide, writes, and says what it did."""
