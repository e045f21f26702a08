import sys

from service.launcher import main

sys.exit(main())
