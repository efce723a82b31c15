/* Constraints as the public interface makes them. */
#include "engine/engine.h"

pn_status pn_constraint_json_object(pn_engine *engine, pn_constraint **constraint, pn_err *err)
{
    PN_REQUIRE(engine && constraint, err);
    return pn_json_object_new(engine->grammar, constraint, err);
}

pn_status pn_constraint_choice(pn_engine *engine, const pn_span *strings, size_t n, bool goes_on,
                               pn_constraint **constraint, pn_err *err)
{
    PN_REQUIRE(engine && constraint && (strings || !n), err);
    return pn_choice_new(engine->grammar, strings, n, goes_on, constraint, err);
}

pn_status pn_constraint_json_schema(pn_engine *engine, pn_span schema, pn_constraint **constraint,
                                    pn_err *err)
{
    PN_REQUIRE(engine && constraint && (schema.ptr || !schema.len), err);
    return pn_json_schema_new(engine->grammar, schema, constraint, err);
}

pn_status pn_constraint_regex(pn_engine *engine, pn_span regex, pn_constraint **constraint,
                              pn_err *err)
{
    PN_REQUIRE(engine && constraint && (regex.ptr || !regex.len), err);
    return pn_regex_new(engine->grammar, regex, constraint, err);
}

pn_status pn_constraint_grammar(pn_engine *engine, pn_span grammar, pn_constraint **constraint,
                                pn_err *err)
{
    PN_REQUIRE(engine && constraint && (grammar.ptr || !grammar.len), err);
    return pn_grammar_text_new(engine->grammar, grammar, constraint, err);
}

pn_status pn_constraint_available(pn_engine *engine, pn_err *err)
{
    PN_REQUIRE(engine, err);
    pn_llguidance *l;
    return pn_grammar_llguidance(engine->grammar, &l, err);
}
