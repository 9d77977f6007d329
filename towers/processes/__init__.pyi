from .agreement import check_settings as check_settings
from .agreement import check_variables as check_variables
from .place import Place as Place
from .place import exposure as exposure
from .place import find_place as find_place
from .processes import Processes as Processes
from .processes import join_processes as join_processes
from .watch import LostPeerError as LostPeerError
