(function_item name: (_) @name) @function
(struct_item name: (_) @name) @class
(union_item name: (_) @name) @class
(enum_item name: (_) @name) @class
(trait_item name: (_) @name) @class
(impl_item !trait type: (_) @implemented) @class
(impl_item trait: (_) @trait type: (_) @implemented) @class
(attribute_item) @above
(line_comment) @above
(block_comment) @above
