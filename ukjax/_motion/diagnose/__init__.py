"""Why a motion failed, in words."""
