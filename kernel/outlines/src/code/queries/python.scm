(function_definition name: (_) @name) @function
(class_definition name: (_) @name) @class
(decorator) @above
(comment) @above
