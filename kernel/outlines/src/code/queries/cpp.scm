(class_specifier name: (_) @name body: (_)) @class
(template_declaration (function_definition declarator: (_) @name body: (_))) @function
(template_declaration (class_specifier name: (_) @name body: (_))) @class
(template_declaration (struct_specifier name: (_) @name body: (_))) @class
