# ruff: noqa: RUF001 -- words of Russian
"""Words of dates and periods, by language: a space between items, a bar between forms of one, "_"
for a space. Units begin with days, weekdays with Monday, seasons with spring, numbers at 1."""

from collections.abc import Mapping
from typing import NamedTuple

from strandline.recall.past_questions import ENGLISH_BEFORE_WEEKDAY


class DateWords(NamedTuple):
    """The words of one language. Fields named `…_form` are regular expressions."""

    months: str
    short_months: str
    """Abbreviations that are read beside a day or a year; `-` for a month without one."""
    weekdays: str
    seasons: str
    units: str
    last_units: str
    """Week, month and year, in the forms that one of them takes beside `last`."""
    numbers: str
    month_follows: str
    """Words after which a month's name alone is a month."""
    year_follows: str
    between: str
    to: str
    and_: str
    since: str
    before: str
    after: str
    early: str
    """Words directly before a month, as of `middle` and `late`."""
    middle: str
    late: str
    ago_forms: tuple[str, ...]
    """COUNT stands for a number and UNIT for a unit."""
    days: str
    """Today, yesterday and the day before."""
    today_if_past: str
    """Words for today, or a part of it, that also stand for what is to come, or for nowadays."""
    on_weekday_form: str
    """What precedes a weekday that is a day, and no habit."""
    weekend: str
    at_weekend: str
    """In a question for what was, at the latest one."""
    ordinal_form: str = ""
    of: str = ""
    """Between a day and its month."""
    of_year: str = ""
    articles: str = ""
    """May stand before a day; after an apostrophe at its end, without a space."""
    year_noun: str = ""
    """What must follow a year."""
    last: str = ""
    last_after: str = ""
    """The same, after its noun."""
    near: str = ""
    """Other words than `last` that choose a month by today."""
    last_night: str = ""
    weekday_end_form: str = ""
    """Parts of a day that are written as one word with it."""
    not_last_form: str = r"(?!)"
    """What precedes "last Friday" where that names no day."""
    month_first: bool = False
    """Whether a month may stand before its day."""
    words: frozenset[str] = frozenset()
    """Months that are common words in lower case."""


DATE_WORDS: Mapping[str, DateWords] = {
    "en": DateWords(
        months="january february march april may june july august september october november "
        "december",
        short_months="jan feb mar apr - jun jul aug sep|sept oct nov dec",
        weekdays="monday tuesday wednesday thursday friday saturday sunday",
        seasons="spring summer autumn|fall winter",
        units="day|days week|weeks month|months year|years",
        last_units="week month year",
        numbers="a|an|one two three four five six seven eight nine ten",
        ordinal_form="st|nd|rd|th",
        of="of",
        articles="the",
        month_follows="in during since until till before after throughout early late mid end_of "
        "beginning_of start_of middle_of half_of rest_of day_of days_of week_of weeks_of "
        "weekend_of weekends_of month_of",
        year_follows="in of during since until before after",
        last="last",
        near="this next",
        between="between from",
        to="to until till through",
        and_="and",
        since="since",
        before="before",
        after="after",
        early="early early_in beginning_of start_of first_days_of first_week_of",
        middle="mid middle_of",
        late="late late_in end_of last_days_of last_week_of",
        ago_forms=("COUNT UNIT ago",),
        last_night="last_night",
        days="today|this_morning yesterday",
        today_if_past="tonight this_afternoon this_evening",
        on_weekday_form=ENGLISH_BEFORE_WEEKDAY,
        weekend="weekend",
        at_weekend="at_the_weekend on_the_weekend over_the_weekend during_the_weekend "
        "this_past_weekend",
        not_last_form=r"\b(?:the|an?|every|each|my|our|your|his|her|its|their|\w+['’]s)\s+$",
        month_first=True,
        words=frozenset({"may", "march", "mar", "jan"}),
    ),
    "de": DateWords(
        months="januar|jänner februar|feber märz|maerz april mai juni|juno juli|julei august "
        "september oktober november dezember",
        short_months="jan feb mär|mrz apr - jun jul aug sep|sept okt nov dez",
        weekdays="montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag",
        seasons="frühling|frühjahr sommer herbst winter",
        units="tag|tage|tagen|tags woche|wochen monat|monate|monaten jahr|jahre|jahren",
        last_units="woche monat|monats jahr|jahres",
        numbers="ein|eine|einem|einen|einer zwei drei vier fünf sechs sieben acht neun zehn",
        ordinal_form=r"\.",
        articles="dem den der die das zum",
        month_follows="im seit seit_dem bis vor vor_dem nach nach_dem ab anfang mitte ende "
        "letzte_woche_im letzten_woche_im erste_woche_im ersten_woche_im",
        year_follows="in im_jahr im_jahre seit bis vor nach",
        last="letzte letzten letzter letztes letztem vorige vorigen voriger voriges vergangene "
        "vergangenen vergangener vergangenes",
        between="zwischen von vom",
        to="bis bis_zum",
        and_="und",
        since="seit",
        before="vor",
        after="nach",
        early="anfang erste_woche_im ersten_woche_im",
        middle="mitte",
        late="ende letzte_woche_im letzten_woche_im",
        ago_forms=("vor COUNT UNIT",),
        last_night="letzte_nacht",
        days="heute_morgen|heute_früh gestern vorgestern",
        today_if_past="heute",
        on_weekday_form=r"am\s+",
        weekday_end_form="abend|morgen|vormittag|mittag|nachmittag|nacht",
        weekend="wochenende",
        at_weekend="am_wochenende übers_wochenende",
        not_last_form=r"\b(?:der|die|das|des|mein\w*|unser\w*|sein\w*|ihr\w*|jede\w*)\s+$",
    ),
    "es": DateWords(
        months="enero febrero marzo abril mayo junio julio agosto septiembre|setiembre octubre "
        "noviembre diciembre",
        short_months="ene feb - abr - jun jul - sept oct nov dic",
        weekdays="lunes martes miércoles|miercoles jueves viernes sábado|sabado domingo",
        seasons="primavera verano otoño invierno",
        units="día|días|dia|dias semana|semanas mes|meses año|años",
        last_units="semana mes año",
        numbers="un|una|uno dos tres cuatro cinco seis siete ocho nueve diez",
        ordinal_form="º",
        of="de del",
        of_year="de del",
        articles="el la al del los",
        month_follows="en desde hasta antes_de después_de despues_de durante mes_de semana_de "
        "principios_de comienzos_de inicios_de mediados_de finales_de fines_de",
        year_follows="en desde hasta antes_de después_de",
        last="pasado pasada",
        last_after="pasado pasada",
        between="entre del de desde",
        to="a al hasta",
        and_="y",
        since="desde",
        before="antes_de antes_del",
        after="después_de después_del despues_de despues_del",
        early="principios_de comienzos_de inicios_de",
        middle="mediados_de",
        late="finales_de fines_de",
        ago_forms=(r"(?<!desde\s)hace COUNT UNIT",),
        days="esta_mañana ayer|anoche anteayer|antier|antes_de_ayer",
        today_if_past="hoy esta_tarde esta_noche",
        on_weekday_form=r"el\s+",
        weekend="fin_de_semana",
        at_weekend="el_fin_de_semana",
    ),
    "fr": DateWords(
        months="janvier février|fevrier mars avril mai juin juillet août|aout septembre octobre "
        "novembre décembre|decembre",
        short_months="janv févr|fév - avr - - juil - sept oct nov déc",
        weekdays="lundi mardi mercredi jeudi vendredi samedi dimanche",
        seasons="printemps été automne hiver",
        units="jour|jours semaine|semaines mois an|ans|année|années",
        last_units="semaine mois an|année",
        numbers="un|une deux trois quatre cinq six sept huit neuf dix",
        ordinal_form="er",
        articles="le la l' les au du",
        month_follows="en depuis avant après apres jusqu'en jusqu'à mois_de début debut mi fin "
        "semaine_de",
        year_follows="en depuis avant après jusqu'en",
        last_after="dernier dernière derniere passé passée",
        between="entre du de",
        to="au jusqu'au à",
        and_="et",
        since="depuis",
        before="avant",
        after="après apres",
        early="début debut début_du_mois_de",
        middle="mi milieu_du_mois_de",
        late="fin fin_du_mois_de",
        ago_forms=("il y a COUNT UNIT",),
        days="ce_matin hier|nuit_dernière avant-hier",
        today_if_past="aujourd'hui cet_après-midi ce_soir",
        on_weekday_form=r"(?<!\ble\s)(?<!les\s)(?<!\bun\s)(?<!\bce\s)(?<!\bdu\s)(?<!\bde\s)"
        r"(?<!haque\s)(?<!\bau\s)(?<!rochain\s)(?<!our\s)(?<!vant\s)(?<!\bà\s)",
        weekend="week-end weekend",
        at_weekend="ce_week-end ce_weekend le_week-end le_weekend pendant_le_week-end",
    ),
    "it": DateWords(
        months="gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre "
        "novembre dicembre",
        short_months="gen feb - apr - giu lug - sett ott nov dic",
        weekdays="lunedì|lunedi martedì|martedi mercoledì|mercoledi giovedì|giovedi "
        "venerdì|venerdi sabato domenica",
        seasons="primavera estate autunno inverno",
        units="giorno|giorni settimana|settimane mese|mesi anno|anni",
        last_units="settimana mese anno",
        numbers="un|uno|una due tre quattro cinque sei sette otto nove dieci",
        ordinal_form="º|°",
        of="di del",
        of_year="del",
        articles="il la l' al all' dal dall' del dell'",
        month_follows="a in da di_inizio inizio inizio_di metà metà_di fine fine_di prima_di dopo "
        "mese_di durante fino_a nel_mese_di",
        year_follows="nel dal fino_al prima_del dopo_il",
        last="scorso scorsa",
        last_after="scorso scorsa passato passata",
        between="tra fra dal dall' da",
        to="al all' fino_al a",
        and_="e",
        since="da dal dall' sin_dal fin_dal",
        before="prima_di prima_del prima_dell'",
        after="dopo dopo_il dopo_l'",
        early="inizio inizio_di",
        middle="metà metà_di",
        late="fine fine_di",
        ago_forms=("COUNT UNIT fa",),
        days="stamattina|stamani|questa_mattina ieri|scorsa_notte|notte_scorsa "
        "l'altro_ieri|altroieri|avantieri",
        today_if_past="oggi stasera questa_sera oggi_pomeriggio",
        on_weekday_form=r"(?<!\bil\s)(?<!\bla\s)(?<!\bal\s)(?<!\bdi\s)(?<!\bdel\s)(?<!gni\s)"
        r"(?<!\bun\s)(?<!\bper\s)(?<!rossimo\s)(?<!rossima\s)(?<!ntro\s)(?<!\ba\s)",
        weekend="fine_settimana weekend",
        at_weekend="nel_fine_settimana nel_weekend",
    ),
    "nl": DateWords(
        months="januari februari maart april mei juni juli augustus september oktober november "
        "december",
        short_months="jan feb mrt apr - jun jul aug sep|sept okt nov dec",
        weekdays="maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
        seasons="lente|voorjaar zomer herfst|najaar winter",
        units="dag|dagen week|weken maand|maanden jaar|jaren",
        last_units="week maand jaar",
        numbers="een|één twee drie vier vijf zes zeven acht negen tien",
        ordinal_form="e|ste|de",
        articles="de het",
        month_follows="in sinds vanaf vóór na tot begin half midden medio eind einde maand",
        year_follows="in sinds vanaf vóór na tot",
        last="vorige vorig afgelopen verleden",
        between="tussen van",
        to="tot tot_en_met t/m",
        and_="en",
        since="sinds vanaf",
        before="voor vóór",
        after="na",
        early="begin",
        middle="half midden medio",
        late="eind einde",
        ago_forms=("COUNT UNIT geleden",),
        days="vanmorgen|vanochtend gisteren|gisteravond|gisterochtend|gistermiddag eergisteren",
        today_if_past="vandaag vanmiddag vanavond",
        on_weekday_form=r"(?<!\bde\s)(?<!\been\s)(?<!lke\s)(?<!edere\s)(?<!oor\s)(?<!óór\s)"
        r"(?<!\btot\s)(?<!aar\s)(?<!ende\s)(?<!\bna\s)(?<!\bvan\s)",
        weekday_end_form="avond|ochtend|morgen|middag|nacht",
        weekend="weekend",
        at_weekend="in_het_weekend dit_weekend",
        not_last_form=r"\b(?:mijn|onze|zijn|haar|elke|iedere)\s+$",
    ),
    "pt": DateWords(
        months="janeiro fevereiro março abril maio junho julho agosto setembro outubro "
        "novembro dezembro",
        short_months="jan fev - abr - jun jul - - - nov dez",
        weekdays="segunda-feira|segunda terça-feira|terça quarta-feira|quarta quinta-feira|quinta "
        "sexta-feira|sexta sábado|sabado domingo",
        seasons="primavera verão outono inverno",
        units="dia|dias semana|semanas mês|mes|meses ano|anos",
        last_units="semana mês|mes ano",
        numbers="um|uma dois|duas três|tres quatro cinco seis sete oito nove dez",
        ordinal_form="º",
        of="de do",
        of_year="de do",
        articles="o a os ao dia no do",
        month_follows="em desde até antes_de depois_de após durante mês_de semana_de início_de "
        "inicio_de começo_de comecinho_de princípio_de meados_de fim_de final_de finais_de",
        year_follows="em desde até antes_de depois_de",
        last="passado passada",
        last_after="passado passada",
        between="entre de do",
        to="a ao até até_ao",
        and_="e",
        since="desde",
        before="antes_de antes_do",
        after="depois_de depois_do após",
        early="início_de inicio_de começo_de comecinho_de princípio_de",
        middle="meados_de",
        late="fim_de final_de finais_de",
        ago_forms=("há COUNT UNIT", "COUNT UNIT atrás"),
        days="esta_manhã|hoje_de_manhã ontem anteontem",
        today_if_past="hoje esta_tarde esta_noite hoje_à_noite",
        on_weekday_form=r"(?:na|no)\s+(?=\w+-feira|s[áa]bado|domingo|\w+\s*(?:[?.!,;]|$)"
        r"|\w+\s+(?:à|de\s+manhã|de\s+tarde)\b)",
        weekend="fim_de_semana final_de_semana",
        at_weekend="no_fim_de_semana no_final_de_semana",
    ),
    "ru": DateWords(
        months="январь|января|январе февраль|февраля|феврале март|марта|марте апрель|апреля|апреле "
        "май|мая|мае июнь|июня|июне июль|июля|июле август|августа|августе "
        "сентябрь|сентября|сентябре октябрь|октября|октябре ноябрь|ноября|ноябре "
        "декабрь|декабря|декабре",
        short_months="янв фев|февр - апр - - - авг сен|сент окт ноя|нояб дек",
        weekdays="понедельник вторник среду четверг пятницу субботу воскресенье",
        seasons="весна|весной лето|летом осень|осенью зима|зимой",
        units="день|дня|дней неделя|неделю|недели|недель месяц|месяца|месяцев год|года|лет",
        last_units="неделе|неделю|недели месяце|месяц|месяца году|год|года",
        numbers="один|одну два|две три четыре пять шесть семь восемь девять десять",
        ordinal_form="-?го|-?е|-?ого",
        month_follows="в во с до после к начале середине конце начала середины конца",
        year_follows="в с до после",
        year_noun="году года год",
        last="прошлый прошлого прошлой прошлом прошлым прошлую прошлое прошлые прошлых",
        between="между с",
        to="по до",
        and_="и",
        since="с со",
        before="до",
        after="после",
        early="начале начала",
        middle="середине середины",
        late="конце конца",
        ago_forms=(r"(?:COUNT |(?=(?:день|неделю|месяц|год)\s))UNIT(?: тому)? назад",),
        days="сегодня_утром вчера|прошлой_ночью позавчера",
        today_if_past="сегодня",
        on_weekday_form=r"\bво?\s+",
        weekend="выходные выходных",
        at_weekend="на_выходных в_выходные",
    ),
}
