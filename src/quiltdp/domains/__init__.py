"""From the files people have to models: pedigrees and location traces."""
