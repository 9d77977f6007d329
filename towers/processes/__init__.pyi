from .agreement import check_settings as check_settings
from .agreement import check_variables as check_variables
from .peers import read_cluster as read_cluster
from .processes import Processes as Processes
from .processes import join_processes as join_processes
from .watch import LostPeerError as LostPeerError
