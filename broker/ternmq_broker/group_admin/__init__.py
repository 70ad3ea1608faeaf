"""What operators do with consumer groups: settings, deletion, resets and clones of offsets."""

from ternmq_broker.group_admin.rpc_group_admin import GroupAdminService as GroupAdminService
from ternmq_broker.group_admin.rpc_group_admin import GroupAdminServices as GroupAdminServices
