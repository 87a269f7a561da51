(function_declaration name: (_) @name body: (_)) @function
(method_declaration
  receiver: (parameter_list
    (parameter_declaration type: [
      (type_identifier) @scope
      (generic_type) @scope
      (pointer_type (_) @scope)
    ]))
  name: (_) @name body: (_)) @function
(type_spec name: (_) @name type: [(struct_type) (interface_type)]) @class
(comment) @above
