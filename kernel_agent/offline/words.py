"""The analyst's vocabulary: meanings of English words in questions about a table.

Only tables, no logic. A word that is in none of them, and is neither a column nor a value of the
table, is not understood, and the question is then refused: so a word belongs in ``STOP`` only if
leaving it out of any question cannot change the answer.
"""

from __future__ import annotations

_STOP_TEXT = """
a an the of in on at to for from with by as into within about and or is are was were be been being
do does did has have had having there their they them it its this that these those who whom whose
which what where when how i me my we our you your s please show give tell find calculate compute
determine get report know see display provide want would like could can
need us data dataset datasets table tables file column columns field fields variable variables value
values record recorded records row rows observed observation observations measured measurement
measurements figure figures entry entries listed included contained exist exists plot plots chart
charts graph graphs draw drawn visualise visualize picture image make create add use using based
given overall all whole entire any one ones only just both also then now respectively here live
lives lived living located belong belongs appear appears occur occurs come comes came kind kinds
type types particular terms term regard respect together look looks found really actually hello hi
thanks thank analysis analyse analyze ok okay
"""
STOP = set(_STOP_TEXT.split())

# What a phrase is (kind, meaning), and the phrases, divided by bars. In a question the longest
# phrase wins. The kinds are explained where they are used: filters.py, groups.py, question.py.
_CUES = {
    ("agg", "mean"): """
        average | mean | avg | averages | typical | on average | arithmetic mean""",
    ("agg", "median"): """
        median | medians | middle value""",
    ("agg", "sum"): """
        sum | total | totals | summed | altogether | in total | combined""",
    ("agg", "max"): """
        maximum | max | maximal | peak""",
    ("agg", "min"): """
        minimum | min | minimal""",
    ("agg", "std"): """
        standard deviation | standard deviations | std | std dev | stdev | sd | standard dev""",
    ("agg", "var"): """
        variance""",
    ("agg", "range"): """
        range""",
    ("sup", "highest"): """
        highest | largest | biggest | greatest | most | top | maximum number of""",
    ("sup", "lowest"): """
        lowest | smallest | least | fewest | bottom | minimum number of""",
    ("count", ""): """
        how many | number of | count of | the number | how often | count the | count | counts |
        size of | sizes of | numbers of | tally | frequency of | frequencies of | frequency""",
    ("distinct", ""): """
        different | distinct | unique""",
    ("common", "highest"): """
        most common | most frequent | commonest | most popular | most often | most numerous""",
    ("common", "lowest"): """
        least common | least frequent | rarest | least popular | least often""",
    ("share", ""): """
        share | percentage | percent | proportion | fraction | ratio of | rate | shares |
        percentages | proportions | %""",
    ("corr", ""): """
        correlation | correlations | correlate | correlates | correlated | relation | relations |
        relationship | relationships | related | relate | associated | association | depend on |
        depends on | linked | connection | connected | go together | correlation matrix |
        correlation coefficient | scatter plot | scatterplot | scatter""",
    ("versus", ""): """
        against | versus | vs""",
    ("strength", ""): """
        strongest | strongly | strong | closely | best | most strongly | most closely""",
    ("trend", ""): """
        over time | over the years | over the months | over the year | trend | trends | change |
        changed | changes | changing | develop | developed | development | evolve | evolved |
        evolution | grow | grew | grown | growth | through time | through the years | time series
        | over the decades | history | progress | progressed | rise | risen | rose | fall | fell |
        fallen | increase | increased | decrease | decreased | decline | declined | over the days
        | over the weeks | across the years | across time | vary over time | historically | line
        chart | line plot | line graph""",
    ("dist", ""): """
        distribution | distributions | distributed | histogram | histograms | spread | spreads |
        box plot | boxplot | dispersion | variability | quartiles""",
    ("missing", ""): """
        missing values | missing value | missing data | missing | nulls | null values | null | nan
        | nans | incomplete | not available | na values | empty cells | gaps | unrecorded | empty
        | missing values does | missing values are there""",
    ("describe", ""): """
        describe | summarise | summarize | summary | summaries | overview | explore | profile |
        what is in | what does this data contain | tell me about | structure | basic statistics |
        summary statistics | descriptive statistics | statistics | stats | what columns | which
        columns | what are the columns | list the columns | column names | names of the columns |
        what data | what variables | which variables | first look | quick look | contents""",
    ("list", ""): """
        list | name the | names of | possible""",
    ("compare", ""): """
        compare | compared | comparison | comparing | contrast | differ | differs | difference |
        differences | differing | different between | different across | vary | varies | variation
        | compared to | compared with""",
    ("by", ""): """
        by | per | grouped by | split by | broken down by | for each | for every | in each | in
        every | of each | within each | each | every | on each | at each | depending on |
        separately for | separated by | across | across all | among the | by each | from each |
        for the different | for all | according to | group by | between | among | for different |
        across different | across the different | of every""",
    ("cmp", ">"): """
        more than | greater than | larger than | higher than | bigger than | above | over |
        exceeding | exceeds | exceed | > | greater | beyond | in excess of | exceeded |
        upwards of""",
    ("cmp", ">="): """
        at least | >= | not less than | no less than | minimum of | a minimum of | not below | ≥""",
    ("cmp", "<"): """
        less than | lower than | smaller than | fewer than | below | under | < | lesser than |
        underneath""",
    ("cmp", "<="): """
        at most | <= | not more than | no more than | up to | maximum of | a maximum of | not
        above | not over | ≤""",
    ("cmp", "=="): """
        equal to | equals | = | == | exactly | equal""",
    ("orcmp", ">="): """
        or more | or higher | or above | or greater | or over | or larger""",
    ("orcmp", "<="): """
        or less | or lower | or below | or fewer | or under | or smaller""",
    ("when", "<"): """
        before | prior to | earlier than""",
    ("when", ">"): """
        after | later than""",
    ("when", ">="): """
        since | starting in | starting from | from the year | as of""",
    ("when", "<="): """
        until | till | through | up to and including | up to the year""",
    ("from", ""): """
        from""",
    ("not", ""): """
        != | excluding | exclude | except | except for | excepting | without | not | other than |
        apart from | non | ignoring | not from | not in | not on | isn't | aren't | wasn't |
        weren't | outside | no | never | didn't | did not | do not | are not | is not | was not |
        were not | does not | doesn't | don't | leaving out | besides | not including""",
    ("and", ""): """
        and | plus | as well as | &""",
    ("or", ""): """
        or | either""",
    ("than", ""): """
        than""",
    ("stop", ""): """
        bar chart | bar charts | bar plot | bar graph | pie chart | column chart | as a chart""",
    ("comparative", "highest"): """
        higher | larger | bigger""",
    ("comparative", "lowest"): """
        lower | smaller | fewer""",
    ("truth", ""): """
        yes | true""",
    ("onwards", ""): """
        onwards | onward""",
    ("ask", ""): """
        how much | what is | what was | what are | what were | what's""",
    ("which", ""): """
        which | what | who | whose""",
    ("why", ""): """
        and why""",
    ("whenwas", ""): """
        when | in which year | in what year | which year | what year | what date | which date | on
        which date | which day | on which day | what day | on what day | at what time | in which
        month | which month | what month""",
    ("verb", ""): """
        is | are | was | were | that | who | have | has | had | with | having | where | whose |
        be""",
    ("period", "year"): """
        yearly | annual | annually | per annum""",
    ("period", "month"): """
        monthly""",
    ("period", "quarter"): """
        quarterly""",
    ("period", "week"): """
        weekly""",
    ("period", "day"): """
        daily""",
    ("period", "calendar"): """
        calendar month | month of the year | time of year | season | seasonal | seasonally""",
    ("period", "weekday"): """
        weekday | day of the week | day of week | days of the week""",
}  # fmt: skip

# Superlatives and comparatives that also say what is measured: the direction, words of which the
# column must have one, the superlatives, the comparatives (to which "than" belongs).
_HINTS = (
    ("highest", "mass weight",
     "heaviest",
     "heavier|weigh more|weighing more|weighs more"),
    ("lowest", "mass weight",
     "lightest",
     "lighter|weigh less|weighing less|weighs less"),
    ("highest", "length duration distance runtime time",
     "longest",
     ""),
    ("lowest", "length duration distance runtime time height",
     "shortest",
     "shorter"),
    ("highest", "height",
     "tallest",
     "taller"),
    ("highest", "depth",
     "deepest",
     "deeper"),
    ("highest", "width",
     "widest",
     "wider"),
    ("lowest", "width",
     "narrowest",
     "narrower"),
    ("highest", "age",
     "oldest|eldest",
     "older|aged over|aged above"),
    ("lowest", "age",
     "youngest",
     "younger|aged under|aged below"),
    ("lowest", "price cost fare",
     "cheapest|least expensive",
     "cheaper|costing less|cost less|costs less"),
    ("highest", "price cost fare",
     "most expensive|priciest|dearest|costliest",
     "more expensive|costing more|cost more|costs more|pricier"),
    ("highest", "speed velocity",
     "fastest|quickest",
     "faster"),
    ("lowest", "speed velocity",
     "slowest",
     "slower"),
    ("highest", "temperature max",
     "hottest|warmest",
     "hotter|warmer"),
    ("lowest", "temperature min",
     "coldest|coolest",
     "colder|cooler"),
    ("highest", "precipitation rain",
     "wettest|rainiest",
     "wetter|rainier"),
    ("lowest", "precipitation rain",
     "driest",
     "drier"),
    ("highest", "wind",
     "windiest|stormiest",
     "windier"),
    ("highest", "horsepower power",
     "most powerful",
     "more powerful"),
    ("highest", "population",
     "most populous|most populated",
     "more populous"),
    ("lowest", "population",
     "least populous|least populated",
     "less populous"),
    ("highest", "rating",
     "highest rated|best rated|top rated|highest-rated|best-rated|top-rated",
     ""),
    ("lowest", "rating",
     "lowest rated|worst rated|lowest-rated|worst-rated",
     ""),
    ("highest", "salary pay wage",
     "highest paid|best paid|highest-paid|best-paid",
     ""),
    ("lowest", "salary pay wage",
     "lowest paid|worst paid|lowest-paid|worst-paid",
     ""),
    ("highest", "sales revenue sold turnover",
     "sold most|sold the most|sells most|sells the most|best selling|best-selling|bestselling",
     ""),
    ("lowest", "sales revenue sold turnover",
     "sold least|sold the least|sells least|sells the least|worst selling|worst-selling",
     ""),
    ("highest", "wealth income",
     "richest|wealthiest",
     "richer|wealthier"),
    ("lowest", "wealth income",
     "poorest",
     "poorer"),
    ("highest", "date year",
     "latest|newest|most recent",
     "newer"),
    ("lowest", "date year",
     "earliest",
     ""),
)  # fmt: skip


def _cue_table() -> dict[tuple[str, ...], tuple[str, str]]:
    table = {
        tuple(phrase.split()): cue
        for cue, phrases in _CUES.items()
        for phrase in phrases.split("|")
    }
    for direction, about, superlatives, comparatives in _HINTS:
        for phrase in superlatives.split("|"):
            table[tuple(phrase.split())] = ("hint", f"{direction} {about}")
        sign = ">" if direction == "highest" else "<"
        for phrase in filter(None, comparatives.split("|")):
            table[(*phrase.split(), "than")] = ("cmphint", f"{sign} {about}")
    for word, sign in (("longer", ">"), ("shorter", "<")):
        table[word, "than"] = ("cmphint", f"{sign} length duration distance runtime time height")
    return table


CUES = _cue_table()
MAX_CUE_WORDS = max(map(len, CUES))

# Words of questions and of column names that mean the same. Left: what both become.
_SAME = {
    "temperature": "temp temperatures tmp", "maximum": "max maximal", "minimum": "min minimal",
    "average": "avg mean", "number": "num nr no", "quantity": "qty quantities", "amount": "amt",
    "population": "pop", "percentage": "pct perc percent", "latitude": "lat",
    "longitude": "lon lng", "department": "dept", "category": "cat categ", "mass": "weight wt",
    "precipitation": "precip prcp rainfall", "sex": "gender", "year": "yr", "month": "mon",
    "displacement": "disp displ", "cylinder": "cyl cyls", "acceleration": "accel",
    "horsepower": "hp", "expectancy": "exp expect", "revenue": "rev", "salary": "sal",
    "transmission": "trans", "highway": "hwy", "city": "cty", "manufacturer": "mfr",
    "description": "desc", "account": "acct", "customer": "cust", "product": "prod",
    "employee": "emp", "height": "ht", "colour": "color", "bill": "culmen beak",
    "survived": "survive survivor survival", "nationality": "nation", "class": "pclass",
}  # fmt: skip
SAME = {short: word for word, shorts in _SAME.items() for short in shorts.split()}

# Whole phrases for a column whose words are others.
PHRASES = {
    "fuel economy": "mpg", "fuel efficiency": "mpg", "gas mileage": "mpg", "mileage": "mpg",
    "miles per gallon": "mpg", "wind speed": "wind", "weather type": "weather",
    "weather condition": "weather", "rain": "precipitation", "body weight": "body mass",
    "gross domestic product": "gdp", "gdp capita": "gdp percap", "horse power": "horsepower",
    "life expectation": "life expectancy", "mpg": "miles gallon",
}  # fmt: skip

# Units as one says them; right: as a column's name states them.
UNIT_WORDS = {
    word: unit for unit, words in {
        "g": "g gram grams gramme", "kg": "kg kilo kilos kilogram kilograms", "mg": "mg",
        "lb": "lb lbs pound pounds", "mm": "mm millimeter millimeters millimetre millimetres",
        "cm": "cm centimeter centimeters centimetre centimetres",
        "m": "m meter meters metre metres",
        "km": "km kilometer kilometers kilometre kilometres", "ft": "ft foot feet",
        "in": "inch inches",
        "miles": "mile miles mi", "s": "s sec seconds", "ms": "ms milliseconds",
        "min": "minutes mins",
        "h": "hours hrs", "days": "days", "USD": "dollar dollars usd", "EUR": "euro euros eur",
        "GBP": "gbp", "%": "% percent pct", "mph": "mph", "km/h": "kmh kph", "kW": "kw",
        "°C": "c celsius", "°F": "f fahrenheit", "years": "years",
    }.items() for word in words.split()
}  # fmt: skip

# Other ways to name a value; left: the value in lower case.
VALUE_WORDS = {
    "male": "males man men boy boys m masculine", "female": "females woman women girl girls f",
    "m": "male males man men boy boys", "f": "female females woman women girl girls",
    "usa": "us american america u.s. u.s.a. united-states", "us": "usa american america",
    "europe": "european", "japan": "japanese", "germany": "german", "france": "french",
    "america": "american", "asia": "asian", "africa": "african",
}  # fmt: skip

MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september",
          "october", "november", "december")  # fmt: skip
NUMBER_WORDS = {
    w: n for n, w in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
         "eleven", "twelve"]
    )
} | {"fifteen": 15, "twenty": 20, "hundred": 100}  # fmt: skip

# Unmentioned words that change what a column is: "population" is not "population growth".
TELLING = {
    "growth", "rate", "change", "rank", "pct", "percent", "percentage", "ratio", "per", "id",
    "code",
    "index", "share", "std", "sd", "error", "lag", "delta", "log", "diff", "difference", "variance",
    "count", "min", "max", "median", "cumulative", "target", "estimated", "expected", "previous",
    "last", "prior", "capita", "percap", "density", "tax", "discount", "net", "non", "not",
    "lost", "returned",
}  # fmt: skip

# Quantities for which groups are compared by their total unless the question says otherwise.
ADDITIVE = {
    "sale", "revenue", "amount", "quantity", "profit", "unit", "passenger", "order", "death",
    "gross", "expense", "spending", "visitor", "attendance", "donation", "turnover", "volume",
    "precipitation", "rain", "rainfall", "snowfall", "production", "generation", "export",
    "import", "birth",
    "case", "accident", "crime", "budget", "earning", "transaction", "view", "download", "click",
    "goal", "medal", "loss", "gain", "emission", "consumption", "delay",
}  # fmt: skip

PERSON_NOUNS = {"person", "individual", "participant", "respondent", "subject"}
ROW_NOUNS = {"row", "record", "entry", "observation", "item", "line", "sample", "case", "datapoint"}
