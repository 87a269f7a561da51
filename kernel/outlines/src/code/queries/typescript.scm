(public_field_definition name: (_) @name value: [(arrow_function) (function_expression)]) @function
(abstract_class_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @class
(enum_declaration name: (_) @name) @class
(type_alias_declaration name: (_) @name value: (object_type)) @class
