"""The views: a file for what each section of the report shows. `page.SECTIONS` has their order."""
