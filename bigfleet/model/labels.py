"""Labels of machines and Nodes that every part reads, and how a capacity type is spelt in one."""

RACK_LABEL = "topology.bigfleet/rack"
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
HOSTNAME_LABEL = "kubernetes.io/hostname"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
CAPACITY_TYPE_LABEL = "bigfleet.lucy.sh/capacity-type"


def capacity_type_label(name: str) -> str:
    """The label's value of a capacity type by its name: `on-demand` for ON_DEMAND."""
    return name.lower().replace("_", "-")
